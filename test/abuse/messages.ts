/** The messages between the test and its two child processes. */
import type { ServerOptions, ServerStats } from '../../server/index.ts'

/** How the server is started. Callbacks cannot cross the process boundary. */
export type VictimOptions = Omit<ServerOptions, 'logger' | 'onExchange' | 'clock' | 'record' | 'directory' | 'peer'>

export interface VictimReady {
  readonly publicPort: number
  readonly controlPort: number
}

/** After a garbage collection. */
export interface VictimState {
  readonly liveBytes: number
  /** Resources that keep the loop alive, by kind. */
  readonly handles: Readonly<Record<string, number>>
  readonly stats: ServerStats
}

export interface WitnessOptions {
  readonly publicPort: number
  readonly controlPort: number
  readonly ca: string
  readonly token: string
  readonly authority: string
}

/** What the well-behaved caller saw. */
export interface Measured {
  readonly requests: number
  /** Requests without the correct answer. */
  readonly lost: number
  readonly p50Ms: number
  readonly p99Ms: number
}
