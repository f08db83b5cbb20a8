import { ZERO } from './clock.ts'

/** Bytes that may always be under way, however slow the session is. */
export const MIN_UNDELIVERED_BYTES = 256 * 1024
/** Bytes that may be under way at most, however fast the session is. */
export const MAX_UNDELIVERED_BYTES = 16 * 1024 * 1024
/**
 * Room above the bandwidth-delay product. It is small, because whatever is above it is a queue in which small requests wait.
 * It is larger while the rate grows from one round trip to the next, and largest until the rate first stops growing.
 */
const HEADROOM = { steady: 1.1, growing: 1.25, starting: 2 } as const
/** Growth within a round trip which shows that the path has more to give. */
const GROWTH = { growing: 1.05, starting: 1.25 } as const
/** The start is over after this many round trips without such growth. */
const FLAT_ROUND_TRIPS = 2
/**
 * Bytes sent after a pause are spread out. After a burst, they leave at no more than this multiple of the rate. A whole
 * bandwidth-delay product at once would be a queue of one round trip.
 */
const PACE = 1.25
const BURST_BYTES = 128 * 1024
/** Longest wait between two looks: clocks that batch deadlines are exact only below 10 ms. */
const LONGEST_WAIT_MS = 8
/** How many pings are placed within what may be under way, and the fewest bytes between two. */
const MARKS_PER_LIMIT = 16
const MIN_MARK_BYTES = 64 * 1024
/** The least round trip is forgotten after one to two of these spans, since paths change. */
const LEAST_RTT_SPAN_MS = 30_000
/** The highest rate is forgotten after one to two spans of this many round trips. */
const RATE_SPAN_ROUND_TRIPS = 10

/** What was known when a ping was placed after the bytes sent so far. */
export interface DeliveryMark {
  readonly placedAt: number
  readonly sentBytes: number
  readonly deliveredBytes: number
  readonly deliveredAt: number
  /** When the last ping that was answered by then was placed. */
  readonly deliveredPlacedAt: number
  /** The writer had more to send, so the sample shows what the path can do. */
  readonly limited: boolean
}

/**
 * How much a session may have under way: `max(256 KiB, 1.1 x delivery rate x least round trip)`. The kernel swallows
 * megabytes before it pushes back; what is kept back here can still be overtaken by a small request.
 *
 * Pure: the owner says what was sent, when pings were placed and when their answers came.
 */
export class Delivery {
  sentBytes = ZERO
  #deliveredBytes = ZERO
  #deliveredAt = ZERO
  #deliveredPlacedAt = ZERO
  #bytesPerMs = ZERO
  #olderBytesPerMs = ZERO
  #rateSpanBegan = ZERO
  #leastRttMs = Number.POSITIVE_INFINITY
  #olderLeastRttMs = Number.POSITIVE_INFINITY
  #spanBegan = ZERO
  #smoothedRttMs = ZERO
  #limitBytes = MIN_UNDELIVERED_BYTES
  /** When the path was first kept half empty, to measure its round trip without our own queue; 0: it is not. */
  #probeBegan = ZERO
  #headroom: number = HEADROOM.starting
  /** A round trip ends with the answer to a ping that was placed after its beginning; the rate is compared at each. */
  #roundBegan = ZERO
  #roundBytesPerMs = ZERO
  #flatRounds = 0
  /** When the path will have taken what was sent, at the pace; and how much of `sentBytes` counts in it. */
  #pacedAt = ZERO
  #pacedBytes = ZERO

  get undeliveredBytes(): number {
    return this.sentBytes - this.#deliveredBytes
  }

  /** Bytes between two pings: few enough that answers come evenly and the path never waits for one. */
  get markEveryBytes(): number {
    return Math.max(MIN_MARK_BYTES, this.#limitBytes / MARKS_PER_LIMIT)
  }

  get limitBytes(): number {
    return this.#probeBegan === 0 ? this.#limitBytes : Math.max(MIN_UNDELIVERED_BYTES, this.#limitBytes >>> 1)
  }

  /** When to check again whether bodies may go on, if the path has not taken yet what was sent; 0: they may now. */
  waitMs(now: number): number {
    const bytesPerMs = PACE * Math.max(this.#bytesPerMs, this.#olderBytesPerMs)
    const bytes = this.sentBytes - this.#pacedBytes
    this.#pacedBytes = this.sentBytes
    if (this.#limitBytes <= MIN_UNDELIVERED_BYTES || this.#headroom === HEADROOM.starting) return 0
    this.#pacedAt = Math.max(this.#pacedAt, now - BURST_BYTES / bytesPerMs) + bytes / bytesPerMs
    return Math.min(LONGEST_WAIT_MS, Math.max(0, this.#pacedAt - now))
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

  /** Hardly anything was under way until now, so the time before says nothing about the path. */
  begin(now: number): void {
    this.#deliveredAt = now
    this.#deliveredPlacedAt = now
  }

  place(now: number, limited: boolean): DeliveryMark {
    return {
      placedAt: now,
      sentBytes: this.sentBytes,
      deliveredBytes: this.#deliveredBytes,
      deliveredAt: this.#deliveredAt,
      deliveredPlacedAt: this.#deliveredPlacedAt,
      limited,
    }
  }

  answered(mark: DeliveryMark, now: number): void {
    this.#sampleRtt(mark, now)
    if (mark.sentBytes <= this.#deliveredBytes) return
    this.#sampleRate(mark, now)
    this.#deliveredBytes = mark.sentBytes
    this.#deliveredAt = now
    this.#deliveredPlacedAt = mark.placedAt
    const bytesPerMs = Math.max(this.#bytesPerMs, this.#olderBytesPerMs)
    if (mark.limited && mark.placedAt >= this.#roundBegan) this.#endRound(bytesPerMs, now)
    // Bytes that no ping covers yet count as under way though they may have arrived, so they are added.
    const wanted = Math.floor(this.#headroom * bytesPerMs * this.leastRttMs + this.markEveryBytes)
    this.#limitBytes = Math.min(MAX_UNDELIVERED_BYTES, Math.max(MIN_UNDELIVERED_BYTES, wanted))
  }

  /** How much room the path has earned by how it used the last one. */
  #endRound(bytesPerMs: number, now: number): void {
    const growth = bytesPerMs / this.#roundBytesPerMs
    this.#roundBegan = now
    this.#roundBytesPerMs = bytesPerMs
    this.#flatRounds = growth >= GROWTH.starting ? 0 : this.#flatRounds + 1
    if (this.#headroom === HEADROOM.starting && this.#flatRounds < FLAT_ROUND_TRIPS) return
    this.#headroom = growth >= GROWTH.growing ? HEADROOM.growing : HEADROOM.steady
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

  /** Keeps the highest rate of the last spans. A sample with less to send than the path carries can only raise it. */
  #sampleRate(mark: DeliveryMark, now: number): void {
    // Delayed answers arrive in a bunch. The path is no faster than the bytes were sent.
    const sendingMs = mark.placedAt - mark.deliveredPlacedAt
    const sample = (mark.sentBytes - mark.deliveredBytes) / Math.max(0.01, sendingMs, now - mark.deliveredAt)
    if (mark.limited && now - this.#rateSpanBegan > RATE_SPAN_ROUND_TRIPS * this.#smoothedRttMs) {
      this.#rateSpanBegan = now
      this.#olderBytesPerMs = this.#bytesPerMs
      this.#bytesPerMs = sample
    } else if (sample > this.#bytesPerMs) this.#bytesPerMs = sample
  }
}
