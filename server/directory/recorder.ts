/** What a replica does with epochs. Tests record it and check that it was allowed. */
export type EpochEvent =
  /** An instance was told that it is active on this epoch. */
  | 'acquired'
  /** The replica learned that this is the latest epoch, and which instance holds it. */
  | 'learned'
  /** The directory confirmed that the replica's knowledge is up to date. */
  | 'renewed'
  /** The last live session of an instance at this replica is gone. */
  | 'released'
  /** A stream was opened, or a hop used, on this epoch. */
  | 'routed'

export type Recorder = (event: EpochEvent, runtime: string, instance: string, epoch: number) => void
