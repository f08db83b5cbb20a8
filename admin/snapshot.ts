/** What a component reports at each scrape. Absent fields are not shown. */
export interface Snapshot {
  sessions?: number
  streams?: number
  bufferedBytes?: number
  /** Sessions that were opened again after one was lost. Only grows. */
  reconnects?: number
  /** Only grow; reasons are a fixed set of the component. */
  handshakesRefused?: Readonly<Record<string, number>>
  /** Requests that wait for a session of their runtime now, and outcomes of those that waited, which only grow. */
  held?: number
  heldOutcomes?: Readonly<Record<string, number>>
  /** The directory of a server, and its connections to other replicas. */
  directory?: { readonly state: string; readonly known: number; readonly operations: number; readonly failures: number }
  peers?: { readonly connected: number; readonly sent: number; readonly taken: number } | undefined
  /** What became of requests whose callers were checked, at a server that checks them. Only grows. */
  access?: { readonly passed: number; readonly refused: number; readonly failed: number } | undefined
  /** Hosts of runtimes' own, at a server that allows them. */
  hosts?: { readonly held: number; readonly contested: number; readonly conflicts: number } | undefined
  /** The webhook inbox of a server. */
  inbox?: InboxSnapshot | undefined
  /** Spans of traced requests. Absent if tracing is off. */
  spans?: SpansSnapshot | undefined
  /** Spans that clients returned to a server. Only grow. */
  spansReturned?: { readonly taken: number; readonly refused: number } | undefined
  /** Changes of state since the start, by a fixed set of names. */
  stateChanges?: Readonly<Record<string, number>>
  /** Last round trip of each live session. */
  roundTripsMs?: readonly number[]
  /** 1 if this client gets the traffic of its runtime, 0 if it is a standby or has no session. */
  active?: number
  /** When the client's token expires, in ms since 1970. */
  tokenExpiresAt?: number
  /** When each certificate in force expires, in ms since 1970, by its use. */
  certificates?: Readonly<Record<string, number>>
  /** Bytes of bodies, also of open exchanges. Only grow. */
  bodyBytesIn?: number
  bodyBytesOut?: number
  /** Bytes over all sessions. Only grow. */
  sessionBytesIn?: number
  sessionBytesOut?: number
}

interface SpansSnapshot {
  readonly queued: number
  /** Only grow; reasons are a fixed set. */
  readonly exported: number
  readonly dropped: Readonly<Record<string, number>>
}

interface InboxSnapshot {
  readonly store: {
    readonly open: boolean
    readonly commits: number
    readonly commitSeconds: number
    readonly commitMaxSeconds: number
  }
  readonly messages: Readonly<Record<string, number>>
  readonly bytes: number
  readonly oldestSeconds: number
  /** Number of runtimes. */
  readonly unprovenRules: number
  /** Only grows. */
  readonly evicted: number
  /** Only grow. Each has a fixed set of names. */
  readonly accepted: Readonly<Record<string, number>>
  readonly attempts: Readonly<Record<string, number>>
  readonly dead: Readonly<Record<string, number>>
  readonly refused: Readonly<Record<string, number>>
}
