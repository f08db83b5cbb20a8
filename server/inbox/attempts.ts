/**
 * Attempts to deliver stored messages. Each is written before it begins, and its outcome before anything follows from it. What
 * cannot be written is not done.
 */
import {
  isSuspectOfTest,
  MAX_TESTS,
  type Outcome,
  progressOf,
  progressOfTest,
  TESTS_MS,
  tookReceiverDown,
} from './retry.ts'
import { type InboxStore, type Message, type Progress, REFUSED, StoreError } from './store.ts'

export interface AttemptsOptions {
  readonly store: InboxStore
  readonly now: () => number
  readonly random: () => number
  /** Rejects with a {@link StoreError}. */
  deliver(message: Message): Promise<Outcome>
  /** Called if an outcome could not be written. Resolves when that should be tried again, or rejects. */
  pauseAfter(error: unknown): Promise<void>
  /** Called after each attempt. */
  onProgress(message: Message, outcome: Outcome, progress: Progress): void
  /** Called when a message became a dead letter without another attempt. */
  onGivenUp(message: Message, reason: string): void
}

type Suspect = readonly [message: Message, reason: string]

/** A round of tests. */
interface Round {
  mustEnd(): boolean
  /** This many messages have left the lane. */
  onLeft(messages: number): void
}

/** All methods reject with a {@link StoreError} if something cannot be written. */
export class Attempts {
  readonly #options: AttemptsOptions

  constructor(options: AttemptsOptions) {
    this.#options = options
  }

  /** `tried` is the message after the attempt. */
  async try(message: Message, next = progressOf): Promise<{ outcome: Outcome; progress: Progress; tried: Message }> {
    const begun = { ...message, attempts: message.attempts + 1 }
    await this.#write(message, { attempts: begun.attempts })
    const outcome = await this.#options.deliver(begun)
    const progress = await this.record(begun, outcome, next)
    return { outcome, progress, tried: { ...begun, ...progress } }
  }

  /** Writes what an attempt came to. */
  async record(message: Message, outcome: Outcome, next = progressOf): Promise<Progress> {
    const { now, random } = this.#options
    const progress = next(message, outcome, now(), random())
    await this.#writeSurely(message, progress)
    this.#options.onProgress(message, outcome, progress)
    return progress
  }

  async giveUp(message: Message, reason: string): Promise<void> {
    await this.#writeSurely(message, { state: 'dead', reason })
    this.#options.onGivenUp(message, reason)
  }

  /**
   * As long as the store fails, it tries again. Otherwise the webhook would be delivered again, or nobody would hear of a dead letter that
   * was written all the same.
   */
  async #writeSurely(message: Message, set: Progress): Promise<void> {
    const at = this.#options.now()
    for (let isAgain = false; ; isAgain = true) {
      try {
        await this.#write(message, set, at, isAgain)
        return
      } catch (error) {
        await this.#options.pauseAfter(error)
      }
    }
  }

  /**
   * Tries the messages behind the first one of a lane, to find out whether it is at fault or the receiver. A message is tried only if
   * all before it are suspect, so that none of them is overtaken while the receiver is down.
   */
  async testBehind(first: Message, round: Round): Promise<void> {
    const { store, now } = this.#options
    const [head, ...others] = (await store.next(first.runtime, first.lane, 1 + MAX_TESTS)) ?? []
    if (head?.id !== first.id) return
    const suspects: Suspect[] = [[head, 'poison']]
    const endsMs = now() + TESTS_MS
    for (const message of others) {
      if (now() >= endsMs || round.mustEnd()) return
      const { outcome, progress, tried } = await this.try(message, progressOfTest)
      if (progress.state !== undefined) round.onLeft(1)
      if (progress.state === 'delivered') {
        await this.#tryAgain(suspects, round)
        return
      }
      if (progress.state === 'dead') continue
      if (outcome.kind === 'offline' || !isSuspectOfTest(tried, outcome, now())) return
      suspects.push([tried, outcome.kind === 'refused' ? REFUSED + outcome.reason : 'poison'])
    }
  }

  /**
   * The first message of a lane took its receiver down when it was last tried, so the one behind it could not show whose fault that
   * was. It is tried before the first one now. Resolves to whether it was delivered.
   */
  async testBefore(first: Message, second: Message, round: Round): Promise<boolean> {
    const { progress } = await this.try(second, progressOfTest)
    if (progress.state !== undefined) round.onLeft(1)
    if (progress.state !== 'delivered') return false
    await this.#tryAgain([[first, 'poison']], round)
    return true
  }

  /**
   * The receiver has just accepted a message behind these, so it works. It may have been down when it failed on them, so each is tried
   * again. If that fails, too, the message is at fault, unless the one before it took the receiver down.
   */
  async #tryAgain(suspects: readonly Suspect[], { mustEnd, onLeft }: Round): Promise<void> {
    let before: Message | undefined
    for (const [message, reason] of suspects) {
      if (mustEnd()) return
      const { outcome, progress, tried } = await this.try(message)
      if (outcome.kind === 'offline' || (before !== undefined && tookReceiverDown(before, tried))) return
      if (progress.state === undefined) await this.giveUp(tried, reason)
      onLeft(1)
      before = tried
    }
    await this.forgetTests(suspects[0]![0])
  }

  /**
   * Call it when the first message was delivered, or one behind it. The receiver works again, so the failed tests of the messages that are
   * left were not their fault. If these still counted, each of the messages would be given up at its next failure. The last one is
   * written first, so that after an interruption the next message still shows that there is more to forget.
   */
  async forgetTests(first: Message): Promise<void> {
    const next = (await this.#options.store.next(first.runtime, first.lane, MAX_TESTS)) ?? []
    const tested = next.filter(({ failedSince }) => failedSince > 0)
    for (const message of tested.reverse()) await this.#write(message, { failures: 0, refusals: 0, failedSince: 0 })
  }

  async #write({ id }: Message, set: Progress, at = this.#options.now(), isAgain = false): Promise<void> {
    const { status } = await this.#options.store.apply({ op: 'update', id, set, at, owned: true })
    if (status !== 'absent' || (isAgain && (await this.#isWritten(id, set, at)))) return
    throw new StoreError('gone', 'the message is gone, or another server owns its lane')
  }

  /**
   * Whether an earlier try ended the message, although its answer was lost. A message that has ended may no longer be ours: its lane may
   * be empty, and was given up.
   */
  async #isWritten(id: string, { state, reason }: Progress, at: number): Promise<boolean> {
    const [found] = await this.#options.store.list({ id, limit: 1 })
    return state !== undefined && found?.state === state && found.reason === reason && found.changed === at
  }
}
