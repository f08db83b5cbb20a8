/**
 * The receive window of one stream: what the peer may still send, what has arrived and is not consumed, and the credit that we
 * owe the peer. These are plain numbers; the caller sends the credit.
 */
export class ReceiveWindow {
  /** What the peer may still send. */
  openBytes: number
  /** Received and not yet consumed. */
  unreadBytes = 0
  /** Consumed, and not yet given back as credit. */
  owedBytes = 0
  /** The whole window: open, unread and owed together. */
  sizeBytes: number
  /** The part of the window that was granted in advance. */
  advancedBytes = 0
  /** Twice the bandwidth-delay product, as last measured. */
  neededBytes = 0
  #measuredAt = -1
  #measuredBytes = 0

  constructor(sizeBytes: number) {
    this.sizeBytes = sizeBytes
    this.openBytes = sizeBytes
  }

  /** Counts `bytes` as consumed, but never more than are unread, and none if a receiver gives no positive number. Returns how many. */
  consume(bytes: number): number {
    const taken = bytes > 0 ? Math.min(bytes, this.unreadBytes) : 0
    this.unreadBytes -= taken
    this.owedBytes += taken
    return taken
  }

  /** Credit is sent in quarters of the window. With halves, up to half the window would lie idle. */
  get creditDue(): boolean {
    return this.owedBytes * 4 >= this.sizeBytes
  }

  /** Takes the credit that is owed, plus the growth of the window. The caller sends it. */
  credit(growthBytes: number): number {
    const credit = this.owedBytes + growthBytes
    this.owedBytes = 0
    this.sizeBytes += growthBytes
    this.openBytes += credit
    return credit
  }

  /**
   * Growth that brings the window to twice the bandwidth-delay product. The rate is that of consumption over at least
   * one round trip, so a slow consumer never earns a large window; the window doubles at most once per round trip.
   */
  growth(now: number, rttMs: number, maxBytes: number): number {
    this.#measuredBytes += this.owedBytes
    if (this.#measuredAt < 0) {
      this.#measuredAt = now
      this.#measuredBytes = 0
      return 0
    }
    const elapsedMs = now - this.#measuredAt
    if (rttMs === 0 || elapsedMs < rttMs) return 0
    this.neededBytes = Math.min(Math.floor((2 * this.#measuredBytes * rttMs) / elapsedMs), maxBytes)
    this.#measuredAt = now
    this.#measuredBytes = 0
    return Math.max(0, Math.min(this.neededBytes, 2 * this.sizeBytes) - this.sizeBytes)
  }
}
