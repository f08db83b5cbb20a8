import { type BudgetMember, type BufferBudget, PRESSURE, SHED_SHARE } from '../../base/budget.ts'
import type { RuntimeCeilings } from './runtime-ceilings.ts'
import { shedStreams } from './shares.ts'
import { StreamChain } from './stream-chain.ts'
import type { YamuxStream } from './yamux-stream.ts'

export interface HeldOwner {
  open(): Iterable<YamuxStream>
}

/**
 * The ledger of a session: bytes that arrived on its streams and that receivers have not consumed. A byte counts from its
 * arrival until it has left its receiver or is discarded, or until its receiver is gone. The end of its stream or session does
 * not change that.
 */
export class Held implements BudgetMember {
  usedBytes = 0
  readonly #limitBytes: number
  readonly #budget: BufferBudget
  /** Set if the session serves many runtimes. */
  readonly #runtimes: RuntimeCeilings | undefined
  readonly #owner: HeldOwner
  /** Streams that are over but whose bytes still wait. */
  readonly #over = new StreamChain()
  #closed = false

  constructor(limitBytes: number, budget: BufferBudget, runtimes: RuntimeCeilings | undefined, owner: HeldOwner) {
    this.#limitBytes = limitBytes
    this.#budget = budget
    this.#runtimes = runtimes
    this.#owner = owner
    runtimes?.join(this)
    budget.join(runtimes ?? this)
  }

  /** Streams that are over but whose bytes still wait. */
  get streamsOver(): number {
    return this.#over.size
  }

  pressed(stream: YamuxStream): boolean {
    if (this.#budget.pressed || this.usedBytes >= this.#limitBytes * PRESSURE) return true
    return this.#runtimes?.pressed(stream.runtime) === true
  }

  #add(stream: YamuxStream, bytes: number): void {
    this.usedBytes += bytes
    this.#budget.take(bytes)
    this.#runtimes?.add(stream.runtime, bytes)
  }

  /** Called before the stream passes to another runtime, which takes over what it holds. */
  handOver(stream: YamuxStream, runtime: string): void {
    this.#runtimes?.add(stream.runtime, -stream.unreadBytes)
    this.#runtimes?.add(runtime, stream.unreadBytes)
  }

  take(stream: YamuxStream, bytes: number): void {
    stream.receive.unreadBytes += bytes
    this.#add(stream, bytes)
  }

  /** From now on the receiver keeps this much of what it has consumed. */
  keep(stream: YamuxStream, bytes: number): void {
    const more = bytes - stream.keptBytes
    stream.keptBytes = bytes
    this.#add(stream, more)
  }

  /** Releases at most what the stream holds. Returns how many bytes that is. */
  release(stream: YamuxStream, bytes: number): number {
    const taken = stream.receive.consume(bytes)
    if (taken === 0) return 0
    this.#add(stream, -taken)
    if (stream.closed && stream.unreadBytes === 0) this.#over.delete(stream)
    if (this.#closed) this.#leave()
    return taken
  }

  /** Drops everything that arrived on the stream. */
  drop(stream: YamuxStream): void {
    this.release(stream, stream.unreadBytes)
  }

  /** The stream is over. What arrived may go on waiting, except for parts of a head that will never be complete. */
  streamOver(stream: YamuxStream): void {
    if (stream.keptBytes > 0) this.keep(stream, 0)
    if (stream.unreadBytes > 0) this.#over.add(stream)
  }

  /** Sheds until the ceilings are kept. */
  enforce({ runtime }: YamuxStream): void {
    this.#runtimes?.enforce(runtime)
    const limitBytes = this.#limitBytes
    if (this.usedBytes > limitBytes) this.shed(this.usedBytes - limitBytes * (1 - SHED_SHARE))
    this.#budget.enforce()
  }

  shed(bytes: number): number {
    return shedStreams(this, this.streams(), bytes)
  }

  *streams(): IterableIterator<YamuxStream> {
    yield* this.#owner.open()
    yield* this.#over
  }

  /** The session is over. It counts against its ceilings until the last byte has gone. */
  close(): void {
    this.#closed = true
    this.#leave()
  }

  #leave(): void {
    if (this.usedBytes > 0) return
    this.#runtimes?.leave(this)
    if (this.#runtimes === undefined || this.#runtimes.sessions === 0) this.#budget.leave(this.#runtimes ?? this)
  }
}
