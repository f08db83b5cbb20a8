/** Wraps what a timer or a promise calls: what it throws ends its session, and nothing else. */
export type Guard = <T = void>(step: (value: T) => void) => (value: T) => void
