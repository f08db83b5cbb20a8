import type { Place } from '../lib/load.ts'
import type { Secrets } from '../lib/secrets.ts'

/** A way from the load generator to the upstream, made of processes of its own. */
export interface Road extends Place {
  readonly key: string
  /** As the report's rows say it. */
  readonly name: string
  /** Base URL that the generator calls. */
  readonly url: string
  /** Our processes on the road (or the peer's): their CPU is counted, the generator's and the upstream's is not. */
  readonly pids: readonly number[]
  stop(): Promise<void>
}

export interface RoadContext {
  readonly upstreamPort: number
  readonly secrets: Secrets
  /** Puts something between the two ends of a tunnel: the port that the client is to dial instead of the one given. */
  readonly via?: (port: number) => Promise<number>
  /** Sessions that the client keeps, where the road has such a number. Default: its own. */
  readonly sessions?: number
  /** Of the route of webhooks. `away`: each is kept at once, and the client has gone. Default: no inbox. */
  readonly inbox?: 'fallback' | 'away'
  /** Folder for .cpuprofile files of our processes. */
  readonly profileTo?: string
}

/** Starts the processes of a road; more than one road where the same processes serve them. */
export type RoadMaker = (context: RoadContext) => Promise<Road[]>

/** Something that runs, and is stopped in the other order than it was started. */
export interface Stoppable {
  stop(): Promise<void>
}

export async function stopInTurn(parts: readonly Stoppable[]): Promise<void> {
  for (const part of parts.toReversed()) await part.stop()
}

/** Runs `make`, which adds to `parts` what it started; stops them if it fails. */
export async function started<T>(parts: Stoppable[], make: () => Promise<T>): Promise<T> {
  try {
    return await make()
  } catch (error) {
    await stopInTurn(parts)
    throw error
  }
}

export const withPath = (road: Road, path: string): Place => ({
  url: road.url + path,
  headers: road.headers,
  ...(road.ca === undefined ? {} : { ca: road.ca }),
  ...(road.http2 ? { http2: true } : {}),
})
