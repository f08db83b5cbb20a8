/** What a check found, one thing at a time. */
export interface Probe {
  /** What was looked at: a stable word, such as `tls`. */
  readonly code: string
  /** `skip`: not reached, because of one before it. */
  readonly status: 'ok' | 'warn' | 'fail' | 'skip'
  /** The thing that was looked at. */
  readonly what: string
  readonly found: string
  readonly expected: string
  /** What to do; empty where nothing is. */
  readonly hint: string
}
