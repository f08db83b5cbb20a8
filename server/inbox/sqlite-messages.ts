/** Messages between the server and the thread that owns the file. */
import type { Change, ChangeResult, Filter, Retention } from './store.ts'

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
  | { readonly ask: 'sweep'; readonly at: number; readonly keep: Retention }
  | { readonly ask: 'counts' }
  | { readonly ask: 'lanes' }
  | { readonly ask: 'close' }

/** The result of a change. `full`: there is no room for it. */
export type Committed = ChangeResult | { readonly status: 'full'; readonly message: string }

export type Question = Ask & { readonly number: number }

export interface Answer {
  readonly number: number
  readonly value?: unknown
  /** `full` and `away` are as in a `StoreError`. `unusable`: the file cannot be used as it is, and waiting will not help. */
  readonly failure?: { readonly kind: 'full' | 'away' | 'damaged' | 'unusable'; readonly message: string }
}
