/** Which instance of a runtime is active, and under which epoch. In memory for one server; shared for several. */
export interface Claim {
  readonly runtime: string
  /** Id that the client made at its start. */
  readonly instance: string
  /** The epoch that the instance says it last held; 0 for none. */
  readonly lastEpoch: number
}

export interface Grant {
  readonly epoch: number
  /** Whether the instance is the active one; else it is a standby. */
  readonly active: boolean
}

export interface Directory {
  /**
   * An instance is ready (its routes are loaded, an echo has crossed). A new one becomes active with a new epoch; one
   * that held an epoch keeps it, and is active unless a later epoch was granted.
   */
  ready(claim: Claim): Promise<Grant>
  /** The active instance drains or is gone, and this standby takes its place, with a new epoch. */
  promote(runtime: string, instance: string): Promise<Grant>
  /** The last session of an instance has ended. Its epoch is remembered for a while, for its return. */
  left(runtime: string, instance: string): void
  close(): Promise<void>
}
