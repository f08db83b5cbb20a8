/** Listens on TCP, as a promise. */
import { once } from 'node:events'
import type { AddressInfo, Server } from 'node:net'
import { guardWith, ignore, logGuard } from '../base/guard.ts'
import type { Logger } from '../base/log.ts'

/** Where to listen. */
export interface ListenAddress {
  /** Default `127.0.0.1`. */
  readonly host?: string | undefined
  /** 0 picks a free port. */
  readonly port: number
  /** A listening socket that this process was given, instead of host and port. A supervisor keeps it open across restarts. */
  readonly fd?: number | undefined
  /** Whether other processes of this user may listen there too, such as the next one before this one ends (SO_REUSEPORT). Default false. */
  readonly reusePort?: boolean | undefined
}

export interface BoundAddress {
  readonly host: string
  readonly port: number
}

/** How many connections wait at a socket that we were given, while it is kept for the next process. Node would set 511. */
const GIVEN_BACKLOG = 4096

/**
 * Resolves to the address once `server` listens. Rejects with the system's error, or with TypeError if `fd` is not a TCP socket.
 * Later errors are logged.
 */
export async function listenOn(server: Server, place: ListenAddress, logger: Logger): Promise<BoundAddress> {
  const { host = '127.0.0.1', port, fd, reusePort = false } = place
  const guard = logGuard(logger, 'a listener failed')
  try {
    if (fd === undefined) server.listen({ host, port, reusePort })
    else server.listen({ fd }, GIVEN_BACKLOG)
    await once(server, 'listening')
  } catch (cause) {
    if (fd === undefined) throw cause
    throw new TypeError(`the socket ${fd} that was given cannot be listened on`, { cause })
  }
  server.on(
    'error',
    guard((error: Error) => logger.error({ err: error }, 'a listener failed')),
  )
  const address = server.address() as AddressInfo | string | null
  if (address !== null && typeof address === 'object') return { host: address.address, port: address.port }
  server.close()
  throw new TypeError(`the socket ${fd} that was given is not one of TCP`)
}

/** How long we keep accepting connections that come faster than we can handle them. */
const MAX_ACCEPTING_MS = 250
/** The most of it that one pass takes up. If a pass takes much longer, this process stood still, and what came meanwhile waits. */
const PASS_MS = 25

/**
 * Stops accepting. Connections that the kernel still holds are reset; those of a socket that we were given are left to the next
 * process.
 */
export async function stopListening(server: Server, { fd }: Pick<ListenAddress, 'fd'>): Promise<void> {
  if (fd === undefined) await allAccepted(server)
  if (server.listening) server.close()
}

/**
 * Resolves after a pass that found no new connection, or at the end of the time. If `server` is closed right then, the kernel resets the
 * connections that it still holds: those that came since that pass. On a busy loop, that may be a dozen of thousands.
 */
async function allAccepted(server: Server): Promise<void> {
  let found = true
  const guard = guardWith(ignore)
  const onConnection = guard(() => {
    found = true
  })
  server.on('connection', onConnection)
  let leftMs = MAX_ACCEPTING_MS
  for (let sinceMs = performance.now(); found && leftMs > 0; ) {
    found = false
    await new Promise<void>(resolve => setImmediate(setImmediate, resolve))
    const nowMs = performance.now()
    leftMs -= Math.min(nowMs - sinceMs, PASS_MS)
    sinceMs = nowMs
  }
  server.off('connection', onConnection)
}
