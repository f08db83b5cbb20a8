/** What the server and the thread of the file say to each other. */
import type { Applied, Change, Filter, Keep } from './store.ts'

export interface WorkerSettings {
  readonly path: string
  readonly minFreeBytes: number
}

export type Ask =
  | { readonly ask: 'open' }
  | { readonly ask: 'apply'; readonly changes: readonly Change[] }
  | { readonly ask: 'next'; readonly runtime: string; readonly lane: string; readonly limit: number }
  | { readonly ask: 'part'; readonly id: string; readonly n: number }
  | { readonly ask: 'list'; readonly filter: Filter }
  | { readonly ask: 'sweep'; readonly at: number; readonly keep: Keep }
  | { readonly ask: 'counts' }
  | { readonly ask: 'close' }

/** What became of a change; `full`: there is no room for it. */
export type Committed = Applied | { readonly status: 'full'; readonly message: string }

export type Question = Ask & { readonly number: number }

export interface Answer {
  readonly number: number
  readonly value?: unknown
  /** `full` and `away` as in a `StoreError`; `damaged` besides. `unusable`: the file cannot be used as it is. */
  readonly failure?: { readonly kind: 'full' | 'away' | 'damaged' | 'unusable'; readonly message: string }
}
