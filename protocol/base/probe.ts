/** The result of one check. */
export interface Probe {
  /** What kind of check it was: a stable word, such as `tls`. */
  readonly code: string
  /** `skip`: not reached, because an earlier check failed. */
  readonly status: 'ok' | 'warn' | 'fail' | 'skip'
  /** What was checked. */
  readonly what: string
  readonly found: string
  readonly expected: string
  /** What to do about it; empty if there is nothing to do. */
  readonly hint: string
}
