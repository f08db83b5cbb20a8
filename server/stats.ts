/** What a server shows of itself: numbers, and its sessions. */
import type { AccessStats } from './access/rules.ts'
import type { RuntimeSession } from './control/runtime-session.ts'
import type { DirectoryStats } from './directory/directory.ts'
import type { HoldOutcomes } from './edge/hold.ts'
import type { InboxStats } from './inbox/inbox.ts'
import type { HostStats, OwnHosts } from './own-hosts.ts'
import type { PeerStats } from './peer/peers.ts'

/** One session with a tunnel client, as a status page shows it. */
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
  /** Where the client dialled from. */
  readonly address: string
  readonly software: string
  /** Hosts of its own that it claims and its runtime has. */
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
  /** Held for callers that have not taken them, also of sessions that have ended. */
  readonly bufferedBytes: number
  readonly replayBytes: number
  /** Connections of callers. */
  readonly callers: number
  /** Exchanges that count against quotas. */
  readonly quotaExchanges: number
  /** Requests that wait for a session of their runtime, and bytes of their bodies. */
  readonly held: number
  readonly heldBytes: number
  /** How requests that waited went on, since the start. */
  readonly heldOutcomes: Readonly<HoldOutcomes>
  readonly sessionBytesIn: number
  readonly sessionBytesOut: number
  readonly roundTripsMs: readonly number[]
  /** Clients that wait for their handshake. */
  readonly handshakesWaiting: number
  /** Clients that were not let in, by reason, since the start. */
  readonly handshakesRefused: Readonly<Record<string, number>>
  readonly directory: DirectoryStats
  /** Absent: no other replicas are spoken to. */
  readonly peers: PeerStats | undefined
  /** When each certificate in force ends, in ms since 1970: `public`, `control`, `peer`; `hosts`: the first of the folder. */
  readonly certificates: Readonly<Record<string, number>>
  /** Hosts of runtimes' own; absent: there are none. */
  readonly hosts: HostStats | undefined
  /** What became of requests whose callers were checked; absent: everybody may call. */
  readonly access: Readonly<AccessStats> | undefined
  /** Absent: webhooks are not kept. */
  readonly inbox: InboxStats | undefined
  /** Of what clients tell of recorded requests: spans that were taken, and requests whose spans were not. Absent: they tell nothing. */
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

/** Sums over live sessions. */
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
