/** A way from the load generator to the upstream, made of processes of its own. */
export interface Road {
  readonly name: string
  /** Base URL that the generator calls, and the headers that it must send. */
  readonly url: string
  readonly headers: Record<string, string>
  /** File with the certificate authority, where the URL is https. */
  readonly ca?: string
  /** Our processes on the road (or the peer's): their CPU is counted, the generator's and the upstream's is not. */
  readonly pids: readonly number[]
  stop(): Promise<void>
}

export type RoadMaker = (upstreamPort: number) => Promise<Road>
