import type { Random } from './random.ts'

/** One parser or state machine with what must hold for it. */
export interface FuzzTarget {
  readonly name: string
  /** An input: made by a grammar, changed here and there. */
  generate(random: Random): Buffer
  /** Throws if something does not hold. All that it does follows from `input` alone, so that a find can be repeated. */
  execute(input: Buffer): void | Promise<void>
  /** How long one input may take, by the clock: of a target that waits. By default it may take 5,000 ms of CPU time. */
  readonly mostMs?: number
  /** Ends what `execute` keeps between inputs. */
  stop?(): Promise<void>
}
