/**
 * Attempts to deliver stored messages. Each is written before it begins, and its outcome before anything follows from it. What
 * cannot be written is not done.
 */
import { isSuspectOfTest, MAX_TESTS, type Outcome, progressOf, progressOfTest, TESTS_MS } from './retry.ts'
import { type InboxStore, type Message, type Progress, StoreError } from './store.ts'

export interface AttemptsOptions {
  readonly store: InboxStore
  readonly now: () => number
  readonly random: () => number
  /** Rejects with a {@link StoreError}. */
  deliver(message: Message): Promise<Outcome>
  /** Called after each attempt. */
  onProgress(message: Message, outcome: Outcome, progress: Progress): void
  /** Called when a message became a dead letter without another attempt. */
  onGivenUp(message: Message, reason: string): void
}

/** All methods reject with a {@link StoreError} if something cannot be written. */
export class Attempts {
  readonly #options: AttemptsOptions

  constructor(options: AttemptsOptions) {
    this.#options = options
  }

  async try(message: Message, next = progressOf): Promise<{ outcome: Outcome; progress: Progress }> {
    const tried = { ...message, attempts: message.attempts + 1 }
    await this.#write(message, { attempts: tried.attempts })
    const outcome = await this.#options.deliver(tried)
    return { outcome, progress: await this.record(tried, outcome, next) }
  }

  /** Writes what an attempt came to. */
  async record(message: Message, outcome: Outcome, next = progressOf): Promise<Progress> {
    const { now, random } = this.#options
    const progress = next(message, outcome, now(), random())
    await this.#write(message, progress)
    this.#options.onProgress(message, outcome, progress)
    return progress
  }

  async giveUp(message: Message, reason: string): Promise<void> {
    await this.#write(message, { state: 'dead', reason })
    this.#options.onGivenUp(message, reason)
  }

  /**
   * Tries the messages behind the first one of a lane, to find out whether it is at fault or the receiver. A message is tried only if
   * all before it are suspect. So if it succeeds, they are all at fault, and none of them comes late. `onLeft` is told how many
   * messages leave the lane.
   */
  async testBehind(first: Message, isPaused: () => boolean, onLeft: (messages: number) => void): Promise<void> {
    const { store, now } = this.#options
    const [head, ...others] = (await store.next(first.runtime, first.lane, 1 + MAX_TESTS)) ?? []
    if (head?.id !== first.id) return
    const suspects: [Message, reason: string][] = [[first, 'poison']]
    const endsMs = now() + TESTS_MS
    for (const message of others) {
      if (now() >= endsMs || isPaused()) return
      const { outcome, progress } = await this.try(message, progressOfTest)
      if (progress.state === 'delivered') {
        onLeft(1 + suspects.length)
        for (const [suspect, reason] of suspects) await this.giveUp(suspect, reason)
        await this.forgetTests(first)
        return
      }
      if (progress.state === 'dead') onLeft(1)
      else if (outcome.kind === 'offline' || !isSuspectOfTest({ ...message, ...progress }, outcome, now())) return
      else suspects.push([message, outcome.kind === 'refused' ? `refused: ${outcome.reason}` : 'poison'])
    }
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

  async #write({ id }: Message, set: Progress): Promise<void> {
    const { store, now } = this.#options
    const { status } = await store.apply({ op: 'update', id, set, at: now(), owned: true })
    if (status === 'absent') throw new StoreError('away', 'the message is gone, or another server owns its lane')
  }
}
