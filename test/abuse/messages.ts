/** What the test says to its two child processes, and what they answer. */
import type { ServerOptions, ServerStats } from '../../server/index.ts'

/** How the server is started; callbacks cannot cross. */
export type VictimOptions = Omit<ServerOptions, 'logger' | 'onExchange' | 'clock' | 'record' | 'directory' | 'peer'>

export interface VictimReady {
  readonly publicPort: number
  readonly controlPort: number
}

/** Behind a collection of garbage. */
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
  /** Requests without the right answer. */
  readonly lost: number
  readonly p50Ms: number
  readonly p99Ms: number
}
