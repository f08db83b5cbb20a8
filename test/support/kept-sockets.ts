/**
 * A supervisor as systemd is one for a socket unit: it keeps listening sockets, and starts a process with them whenever the
 * one before has ended well.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'

/** Node accepts from what it listens on; a shell holds sockets and leaves them alone. */
const ONE = 'echo "{\\"msg\\":\\"began\\",\\"pid\\":$$}" >&2; export LISTEN_PID=$$; exec "$@"'
const LOOP = 'while sh -c "$SUPERVISED" sh "$@"; do :; done'

export interface KeptSockets {
  /** In the order of the names. */
  readonly ports: readonly number[]
  /** What the shell is started with, before the command that it starts. */
  readonly command: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly fds: readonly number[]
  /** To be called once the shell has them. */
  release(): void
}

export async function keepSockets(names: readonly string[], host = '127.0.0.1'): Promise<KeptSockets> {
  const servers = names.map(() => createServer().listen(0, host))
  await Promise.all(servers.map(server => once(server, 'listening')))
  return {
    ports: servers.map(server => (server.address() as AddressInfo).port),
    command: ['sh', '-c', LOOP, 'sh'],
    environment: { SUPERVISED: ONE, LISTEN_FDS: String(names.length), LISTEN_FDNAMES: names.join(':') },
    fds: servers.map(fdOf),
    release: () => {
      for (const server of servers) server.close()
    },
  }
}

function fdOf(server: Server): number {
  return (server as unknown as { _handle: { fd: number } })._handle.fd
}
