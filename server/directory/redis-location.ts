/** Finds the node that has our keys: Sentinels know the primary, and the nodes of a cluster know who has the slot. */
import { setTimeout as pause } from 'node:timers/promises'
import { withBrackets } from '../../protocol/base/host-port.ts'
import { endClient, type RedisClient } from './redis-client.ts'
import type { RedisLocation } from './redis-url.ts'

/** Makes a client for one `host:port` that is not connected yet. */
type ClientFor = (host: string) => RedisClient

/**
 * Asks all Sentinels at once for the primary, and yields each `host:port` that they name. One that was cut off names an old primary. If the
 * first address was no good, the other Sentinels have `othersMs` left, since one that is down never answers.
 */
export async function* askSentinels(
  { hosts, sentinel }: RedisLocation,
  clientFor: ClientFor,
  othersMs: number,
): AsyncGenerator<string> {
  const clients = hosts.map(clientFor)
  const answers = clients.map(() => Promise.withResolvers<string | undefined>())
  const named = new Set<string>()
  const errors: string[] = []
  let arrived = 0
  for (const [i, client] of clients.entries()) {
    const note = (error: Error) => {
      errors[i] = error.message || String(error)
      return undefined
    }
    void askSentinel(client, sentinel!)
      .catch(note)
      .then(host => answers[arrived++]!.resolve(host))
  }
  let late: Promise<undefined> | undefined
  try {
    for (const { promise } of answers) {
      const host = await (late === undefined ? promise : Promise.race([promise, late]))
      if (host === undefined || named.has(host)) continue
      named.add(host)
      yield host
      late ??= pause(othersMs, undefined, { ref: false })
    }
  } finally {
    for (const client of clients) endClient(client)
  }
  // Without the errors' codes: if no Sentinel listens, that does not mean that Redis is down.
  if (named.size === 0) throw new Error(`no Sentinel knows ${sentinel}: ${[...new Set(errors)].join('; ')}`)
}

async function askSentinel(client: RedisClient, name: string): Promise<string> {
  client.on('error', () => {})
  await client.connect()
  const said = await client.sendCommand<unknown>(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name])
  const [host, port] = Array.isArray(said) ? said.map(String) : []
  if (host === undefined || port === undefined) throw new Error('it is not monitored')
  return `${withBrackets(host)}:${port}`
}

/**
 * Where the node `asked` of a cluster says that the keys are. `undefined` if the error is another one. An IPv6 address comes without
 * brackets, and an empty host means the one that was asked.
 */
export function movedTo(error: unknown, asked: string): string | undefined {
  const [, host, port] = /^(?:MOVED|ASK) \d+ (\S*):(\d+)$/.exec((error as Error).message) ?? []
  if (port === undefined) return undefined
  return `${host === '' ? asked.slice(0, asked.lastIndexOf(':')) : withBrackets(host!)}:${port}`
}
