import type { Place } from '../lib/load.ts'
import type { Secrets } from '../lib/secrets.ts'

/** What is between the load generator and the upstream: one or more processes, or none. */
export interface Setup extends Place {
  readonly key: string
  /** The name in the report's rows. */
  readonly name: string
  /** Base URL that the generator calls. */
  readonly url: string
  /** Our processes in the setup, or the peer's. Their CPU is counted. That of the generator and the upstream is not. */
  readonly pids: readonly number[]
  stop(): Promise<void>
}

export interface SetupContext {
  readonly upstreamPort: number
  readonly secrets: Secrets
  /** Puts something between the two ends of a tunnel. Returns the port that the client should dial instead of the given one. */
  readonly via?: (port: number) => Promise<number>
  /** How many sessions the client keeps, if the setup has such a setting. Default: the client's own. */
  readonly sessions?: number
  /** For the webhook route. `away`: each webhook is stored at once, and the client is offline. Default: no inbox. */
  readonly inbox?: 'fallback' | 'away'
  /** Folder for .cpuprofile files of our processes. */
  readonly profileTo?: string
}

/** Starts the processes of a setup, or of several setups if the same processes serve them. */
export type SetupMaker = (context: SetupContext) => Promise<Setup[]>

/** Something that runs. Parts are stopped in the reverse order of their start. */
export interface Stoppable {
  stop(): Promise<void>
}

export async function stopInTurn(parts: readonly Stoppable[]): Promise<void> {
  for (const part of parts.toReversed()) await part.stop()
}

/** Runs `make`, which adds what it starts to `parts`. If it fails, they are stopped. */
export async function started<T>(parts: Stoppable[], make: () => Promise<T>): Promise<T> {
  try {
    return await make()
  } catch (error) {
    await stopInTurn(parts)
    throw error
  }
}

export const withPath = (setup: Setup, path: string): Place => ({
  url: setup.url + path,
  headers: setup.headers,
  ...(setup.ca === undefined ? {} : { ca: setup.ca }),
  ...(setup.http2 ? { http2: true } : {}),
})
