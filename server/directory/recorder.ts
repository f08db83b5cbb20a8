/** What a replica does with epochs, told to a checker that decides whether it was allowed. */
export type EpochEvent =
  /** An instance was said to be active under this epoch. */
  | 'acquired'
  /** This became known to be the latest epoch, and the instance to hold it. */
  | 'learned'
  /** The directory confirmed that what is known holds. */
  | 'renewed'
  /** The last live session of an instance at this replica is gone. */
  | 'released'
  /** A stream was opened, or a hop taken, on this epoch. */
  | 'routed'

export type Recorder = (event: EpochEvent, runtime: string, instance: string, epoch: number) => void
