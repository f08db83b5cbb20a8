/** Keeps the exchanges of the inspector within limits of count and bytes. The oldest make room for new ones. */

/** An exchange that the ring keeps. */
export interface RingMember {
  readonly id: string
  /** Bytes that count against the limit. */
  readonly heldBytes: number
  /** Called when it had to make room for another. It must release what it holds. */
  dropped(): void
}

export const RING_EXCHANGES = 500
export const RING_BYTES = 32 * 1024 * 1024

export class Ring<Member extends RingMember> implements Iterable<Member> {
  readonly #members = new Map<string, Member>()
  bytes = 0
  droppedExchanges = 0
  droppedBytes = 0

  get size(): number {
    return this.#members.size
  }

  get(id: string): Member | undefined {
    return this.#members.get(id)
  }

  /** Iterates from the oldest. */
  [Symbol.iterator](): Iterator<Member> {
    return this.#members.values()
  }

  add(member: Member): void {
    if (this.#members.size >= RING_EXCHANGES) this.#dropOldest()
    this.#members.set(member.id, member)
    this.bytes += member.heldBytes
    this.makeRoom(0, member)
  }

  /** Changes the total by `bytes`. Call it before the member changes its own count. */
  count(bytes: number): void {
    this.bytes += bytes
  }

  /** How many of `bytes` more bytes `member` may keep. Older members make room, but `member` itself does not. */
  makeRoom(bytes: number, member: Member): number {
    while (this.bytes + bytes > RING_BYTES) {
      const [oldest] = this.#members.values()
      if (oldest === undefined || oldest === member) break
      this.#dropOldest()
    }
    return Math.max(0, Math.min(bytes, RING_BYTES - this.bytes))
  }

  #dropOldest(): void {
    const [oldest] = this.#members.values()
    if (oldest === undefined) return
    this.droppedExchanges++
    this.#remove(oldest)
  }

  #remove(member: Member): void {
    this.#members.delete(member.id)
    this.bytes -= member.heldBytes
    member.dropped()
  }

  /** Drops all members. */
  clear(): void {
    for (const member of this.#members.values()) this.#remove(member)
  }
}
