/** What a replica did with epochs, for a checker that decides whether it was allowed to. */
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

export type Recorder = (deed: EpochEvent, runtime: string, instance: string, epoch: number) => void
