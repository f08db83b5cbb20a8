import { ZERO } from './clock.ts'

/** Bytes that may always be in flight, however slow the session is. */
export const MIN_UNDELIVERED_BYTES = 256 * 1024
/** Most bytes that may be in flight, however fast the session is. */
export const MAX_UNDELIVERED_BYTES = 16 * 1024 * 1024
/**
 * Factor on the bandwidth-delay product. It is small, because whatever exceeds that product is a queue in which small requests
 * wait. It is larger while the rate grows from one round trip to the next, and largest until the rate first stops growing.
 */
const HEADROOM = { steady: 1.1, growing: 1.25, starting: 2 } as const
/** Growth within a round trip that shows that the path can carry more. */
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
/** How many pings are placed within the bytes in flight, and the fewest bytes between two. */
const MARKS_PER_LIMIT = 16
const MIN_MARK_BYTES = 64 * 1024
/** The least round trip is forgotten after one to two of these periods, since paths change. */
const LEAST_RTT_SPAN_MS = 30_000
/** The highest rate is forgotten after one to two periods of this many round trips. */
const RATE_SPAN_ROUND_TRIPS = 10

/** What was known when a ping was placed after the bytes sent so far. */
export interface DeliveryMark {
  readonly placedAt: number
  readonly sentBytes: number
  readonly deliveredBytes: number
  readonly deliveredAt: number
  /** When the last ping that was answered by then was placed. */
  readonly deliveredPlacedAt: number
  /** Whether the writer had more to send, so that the sample shows what the path can carry. */
  readonly limited: boolean
}

/**
 * How many bytes a session may have in flight: `max(256 KiB, 1.1 x delivery rate x least round trip)`. The kernel accepts
 * megabytes before it pushes back, but a small request can still overtake what is held back here.
 *
 * Pure: the owner reports what was sent, when pings were placed, and when they were answered.
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
  /** When the path was first kept half empty, to measure its round trip without our own queue; 0 if it is not. */
  #probeBegan = ZERO
  #headroom: number = HEADROOM.starting
  /** A round trip ends with the answer to a ping that was placed after its beginning; the rate is compared at each. */
  #roundBegan = ZERO
  #roundBytesPerMs = ZERO
  #flatRounds = 0
  /** When the path will have taken what was sent, at this pace, and how much of `sentBytes` is included. */
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

  /** How long bodies must wait, because the path has not taken what was sent; 0 if they may continue now. */
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

  /** Call it when hardly anything was in flight until now, so the time before says nothing about the path. */
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
    // Bytes that no ping covers yet count as in flight although they may have arrived, so they are added.
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
