import type { Random } from './random.ts'

/** One parser or state machine, and what must hold for it. */
export interface FuzzTarget {
  readonly name: string
  /** An input: made by a grammar, with a few changes. */
  generate(random: Random): Buffer
  /** Throws if something does not hold. It must depend only on `input`, so that a find can be repeated. */
  execute(input: Buffer): void | Promise<void>
  /** How long one input may take by the clock, for targets that wait. By default it may take 5,000 ms of CPU time. */
  readonly mostMs?: number
  /** Closes what `execute` keeps open between inputs. */
  stop?(): Promise<void>
}
