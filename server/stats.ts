/** Statistics of a server, and descriptions of its sessions. */
import type { AccessStats } from './access/rules.ts'
import type { RuntimeSession } from './control/runtime-session.ts'
import type { DirectoryStats } from './directory/directory.ts'
import type { HoldOutcomes } from './edge/hold.ts'
import type { InboxStats } from './inbox/inbox.ts'
import type { HostStats, OwnHosts } from './own-hosts.ts'
import type { PeerStats } from './peer/peers.ts'

/** One session with a tunnel client, for status pages. */
export interface SessionInfo {
  readonly id: string
  readonly runtime: string
  readonly instance: string
  readonly connection: number
  readonly replica: string
  readonly epoch: number
  /** Whether its instance is the one that gets new exchanges. */
  readonly active: boolean
  readonly state: string
  /** Address of the client. */
  readonly address: string
  readonly software: string
  /** Hosts of its own that its token claims, and that its runtime holds. */
  readonly hosts: readonly string[]
  /** Milliseconds since 1970. */
  readonly connectedAt: number
  readonly tokenEndsAt: number
  readonly rttMs: number
  readonly exchanges: number
  readonly streams: number
  readonly bufferedBytes: number
  readonly bytesIn: number
  readonly bytesOut: number
}

/** Counters and gauges of one server, for metrics and status pages. */
export interface ServerStats {
  readonly replica: string
  readonly runtimes: number
  readonly sessions: number
  readonly streams: number
  readonly exchanges: number
  /** Bytes that callers have not read yet, including those of sessions that have ended. */
  readonly bufferedBytes: number
  readonly replayBytes: number
  /** Connections of callers. */
  readonly callers: number
  /** Exchanges that count against quotas. */
  readonly quotaExchanges: number
  /** Requests that wait for a session of their runtime, and bytes of their bodies. */
  readonly held: number
  readonly heldBytes: number
  /** What became of requests that waited, since the start. */
  readonly heldOutcomes: Readonly<HoldOutcomes>
  /** Bytes of the bodies of requests and responses since the start, also of open ones. Counted only with `onExchange`. */
  readonly bodyBytesIn: number
  readonly bodyBytesOut: number
  readonly sessionBytesIn: number
  readonly sessionBytesOut: number
  readonly roundTripsMs: readonly number[]
  /** Clients that wait for their handshake. */
  readonly handshakesWaiting: number
  /** Clients that were refused since the start, by reason. */
  readonly handshakesRefused: Readonly<Record<string, number>>
  readonly directory: DirectoryStats
  /** Absent if there are no connections to other replicas. */
  readonly peers: PeerStats | undefined
  /**
   * When each certificate in force expires, in ms since 1970: `public`, `control`, `peer`, and `hosts`, the first of those of the
   * folder that are in use.
   */
  readonly certificates: Readonly<Record<string, number>>
  /** Hosts of runtimes' own. Absent if they are off. */
  readonly hosts: HostStats | undefined
  /** What became of requests whose callers were checked. Absent if everybody may call. */
  readonly access: Readonly<AccessStats> | undefined
  /** Absent without an inbox. */
  readonly inbox: InboxStats | undefined
  /** Spans that clients returned for recorded requests: how many were accepted, and for how many requests they were not. Absent if off. */
  readonly spansReturned: { readonly taken: number; readonly refused: number } | undefined
  readonly sessionsOpened: number
  readonly sessionsEnded: number
}

export function describeSession(session: RuntimeSession, replica: string, hosts: OwnHosts | undefined): SessionInfo {
  const { session: yamux } = session
  return {
    id: session.id,
    runtime: session.runtime,
    instance: session.instance,
    connection: session.connection,
    replica,
    epoch: session.epoch,
    active: session.active,
    state: session.state,
    address: session.address,
    software: session.software,
    hosts: hosts?.heldBy(session) ?? [],
    connectedAt: session.connectedAt,
    tokenEndsAt: session.identity.expiresAt * 1000,
    rttMs: session.rttMs,
    exchanges: session.exchanges,
    streams: yamux.streams,
    bufferedBytes: yamux.bufferedBytes,
    bytesIn: yamux.bytesIn,
    bytesOut: yamux.bytesOut,
  }
}

/** Totals of live sessions. */
export function sumSessions(sessions: Iterable<RuntimeSession>) {
  const totals = { streams: 0, exchanges: 0, bytesIn: 0, bytesOut: 0, roundTripsMs: [] as number[] }
  for (const { session, exchanges } of sessions) {
    totals.streams += session.streams
    totals.exchanges += exchanges
    totals.bytesIn += session.bytesIn
    totals.bytesOut += session.bytesOut
    if (session.rttMs > 0) totals.roundTripsMs.push(session.rttMs)
  }
  return totals
}
