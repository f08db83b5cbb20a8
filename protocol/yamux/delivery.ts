/** Bytes that may always be under way, however slow the session is. */
export const MIN_UNDELIVERED_BYTES = 256 * 1024
/** Bytes that may be under way at most, however fast the session is. */
export const MAX_UNDELIVERED_BYTES = 16 * 1024 * 1024
/** Room above the bandwidth-delay product, so that a faster path is noticed. */
const HEADROOM = 1.25
/** The least round trip is forgotten after one to two such spans: paths change. */
const LEAST_RTT_SPAN_MS = 30_000

/** What was known when a ping was placed behind the bytes sent so far. */
export interface DeliveryMark {
  readonly placedAt: number
  readonly sentBytes: number
  readonly deliveredBytes: number
  readonly deliveredAt: number
  /** The writer had more to send than the limit let through, so the sample shows what the path can do. */
  readonly limited: boolean
}

/**
 * How much a session may have under way: `max(256 KiB, 1.25 x delivery rate x least round trip)`. The kernel swallows
 * megabytes before it pushes back; what is kept back here can still be overtaken by a small request.
 *
 * Pure: the owner says what was sent, when pings were placed and when their answers came.
 */
export class Delivery {
  sentBytes = 0
  #deliveredBytes = 0
  #deliveredAt = 0
  #bytesPerMs = 0
  #leastRttMs = Number.POSITIVE_INFINITY
  #olderLeastRttMs = Number.POSITIVE_INFINITY
  #spanBegan = 0
  #smoothedRttMs = 0
  #limitBytes = MIN_UNDELIVERED_BYTES
  /** Since when the path is kept half empty, to see its round trip without our own queue; 0: it is not. */
  #probeBegan = 0

  get undeliveredBytes(): number {
    return this.sentBytes - this.#deliveredBytes
  }

  get limitBytes(): number {
    return this.#probeBegan === 0 ? this.#limitBytes : Math.max(MIN_UNDELIVERED_BYTES, this.#limitBytes / 2)
  }

  /** Smoothed round trip; 0 before the first answer. */
  get rttMs(): number {
    return this.#smoothedRttMs
  }

  /** Least round trip of the last half to whole minute; 0 before the first answer. */
  get leastRttMs(): number {
    const least = Math.min(this.#leastRttMs, this.#olderLeastRttMs)
    return Number.isFinite(least) ? least : 0
  }

  place(now: number, limited: boolean): DeliveryMark {
    return {
      placedAt: now,
      sentBytes: this.sentBytes,
      deliveredBytes: this.#deliveredBytes,
      deliveredAt: this.#deliveredAt,
      limited,
    }
  }

  answered(mark: DeliveryMark, now: number): void {
    this.#sampleRtt(mark, now)
    if (mark.sentBytes <= this.#deliveredBytes) return
    this.#sampleRate(mark, now)
    this.#deliveredBytes = mark.sentBytes
    this.#deliveredAt = now
    const wanted = HEADROOM * this.#bytesPerMs * this.leastRttMs
    this.#limitBytes = Math.min(MAX_UNDELIVERED_BYTES, Math.max(MIN_UNDELIVERED_BYTES, wanted))
  }

  #sampleRtt(mark: DeliveryMark, now: number): void {
    const rttMs = Math.max(0.01, now - mark.placedAt)
    this.#smoothedRttMs = this.#smoothedRttMs === 0 ? rttMs : this.#smoothedRttMs + (rttMs - this.#smoothedRttMs) / 8
    if (rttMs < this.#leastRttMs) this.#leastRttMs = rttMs
    if (this.#probeBegan !== 0 && mark.placedAt >= this.#probeBegan + this.leastRttMs) this.#probeBegan = 0
    if (now - this.#spanBegan < LEAST_RTT_SPAN_MS) return
    this.#spanBegan = now
    this.#olderLeastRttMs = this.#leastRttMs
    this.#leastRttMs = Number.POSITIVE_INFINITY
    if (this.#limitBytes > MIN_UNDELIVERED_BYTES) this.#probeBegan = now
  }

  #sampleRate(mark: DeliveryMark, now: number): void {
    const elapsedMs = Math.max(0.01, now - mark.deliveredAt)
    const sample = (mark.sentBytes - mark.deliveredBytes) / elapsedMs
    if (sample > this.#bytesPerMs) this.#bytesPerMs = sample
    else if (mark.limited) this.#bytesPerMs += (sample - this.#bytesPerMs) / 8
  }
}
