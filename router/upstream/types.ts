/** What an exchange gives to its upstream. */
import type { HeaderList } from '../../protocol/exchange.ts'

/** The final head, as it is sent. */
export interface UpstreamRequest {
  readonly method: string
  readonly authority: string
  readonly path: string
  readonly headers: HeaderList
  readonly bodyBytes: number
  readonly upgrade: boolean
  /** Address of the caller. */
  readonly caller: string
  /** Whether the route accepts `Idempotency-Key`, and the upstream gets one that it takes for one. */
  readonly idempotent: boolean
}

export interface ForwardOptions {
  readonly connectMs: number
  readonly headMs: number
  /** How often it may be sent again; see `RouteRetries`. */
  readonly attempts: number
}
