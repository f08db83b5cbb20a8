/**
 * Listening sockets that were passed to the process at its start (sd_listen_fds(3)). systemd keeps them open across restarts, so
 * that callers wait instead of being refused.
 */
import { configurationError } from '../failure.ts'

/** Socket numbers by the name of the listener, as in the log. */
export type GivenSockets = ReadonlyMap<string, number>

/** Number of the first socket, by convention. */
const FIRST = 3
const NAMES = {
  server: ['public', 'control', 'peer', 'admin', 'health'],
  client: ['admin', 'health'],
  router: ['router', 'admin', 'health'],
} as const

/** Empty if the variables are absent, or meant for another process. */
export function givenSockets(
  component: keyof typeof NAMES,
  environment: Readonly<Record<string, string | undefined>>,
  pid: number = process.pid,
): GivenSockets {
  const { LISTEN_FDS: count = '', LISTEN_PID: owner, LISTEN_FDNAMES: list = '' } = environment
  const sockets = new Map<string, number>()
  if (count === '' || count === '0' || owner !== String(pid)) return sockets
  const names = list.split(':')
  if (String(names.length) !== count) {
    throw configurationError(`LISTEN_FDNAMES must name each of the ${count} sockets: give each a FileDescriptorName=`)
  }
  for (const [index, name] of names.entries()) {
    const known: readonly string[] = NAMES[component]
    if (!known.includes(name)) {
      throw configurationError(`a socket is given for "${name}", which is not one of ${known.join(', ')}`)
    }
    if (sockets.has(name)) throw configurationError(`two sockets are given for "${name}"`)
    sockets.set(name, FIRST + index)
  }
  return sockets
}

/** Refuses sockets without a listener: they would accept connections and leave them waiting. */
export function demandListeners(sockets: GivenSockets, listens: Readonly<Record<string, boolean>>): void {
  for (const [name, isListening] of Object.entries(listens)) {
    if (sockets.has(name) && !isListening) {
      throw configurationError(`a socket is given for "${name}", but no --${name}.listen`)
    }
  }
}

/** Removes the variables, so that programs that we start do not take the sockets for theirs. */
export function forgetSockets(environment: Record<string, string | undefined>): void {
  for (const name of ['LISTEN_FDS', 'LISTEN_PID', 'LISTEN_FDNAMES']) delete environment[name]
}
