import { checkDuration } from '../../base/durations.ts'
import { SPEC_WINDOW_BYTES } from './frame.ts'

/** The most that `maxWindowBytes` may be. */
export const MAX_WINDOW_BYTES = 16 * 1024 * 1024

export interface SessionLimits {
  /** Window of a new stream until {@link Session.setPeerLimits} says otherwise. Default 256 KiB, the spec's. */
  readonly initialWindowBytes: number
  /** Up to here a stream's window grows. Default 4 MiB, at most 16 MiB. */
  readonly maxWindowBytes: number
  /** Streams at one time, both ends' together. Default 1,000. */
  readonly maxStreams: number
  /** Streams that one end opened and the other has not acknowledged. Default 256. */
  readonly backlog: number
  /** Ceiling on bytes held for receivers, over all streams. Default 32 MiB. */
  readonly sessionBufferBytes: number
  /** The longest control message, in either direction. Default 16 KiB. */
  readonly controlBytes: number
  /** Default 10 s; at most two thirds of the time-out. */
  readonly pingIntervalMs: number
  /** Nothing at all arrived for so long, and a ping waits for its answer: the session is dead. Default 15 s. */
  readonly pingTimeoutMs: number
  /** The transport took nothing for so long: the session is dead. Default 10 s. */
  readonly writeDeadlineMs: number
  /** A stream that the peer has not acknowledged after so long is reset. Default 10 s. */
  readonly openDeadlineMs: number
  /** Streams that the peer opens and resets, or opens in vain: so many at once. Default 5,000. */
  readonly resetBurst: number
  /** ... and so many a second in the long run. Default 1,000. */
  readonly resetsPerSecond: number
}

export const DEFAULT_SESSION_LIMITS: SessionLimits = {
  initialWindowBytes: SPEC_WINDOW_BYTES,
  maxWindowBytes: 4 * 1024 * 1024,
  maxStreams: 1_000,
  backlog: 256,
  sessionBufferBytes: 32 * 1024 * 1024,
  controlBytes: 16 * 1024,
  pingIntervalMs: 10_000,
  pingTimeoutMs: 15_000,
  writeDeadlineMs: 10_000,
  openDeadlineMs: 10_000,
  resetBurst: 5_000,
  resetsPerSecond: 1_000,
}

/**
 * For a peer that is trusted, and that resets a stream because a stranger has gone: whoever begins requests and cancels
 * them must not end the session that those of all others go by.
 */
export const RESETS_OF_STRANGERS = { resetBurst: 1_000_000, resetsPerSecond: 100_000 } as const

/** `given` with the defaults for what is absent; a value out of range is a `TypeError`. */
export function resolveSessionLimits(given: { [K in keyof SessionLimits]?: number | undefined }): SessionLimits {
  const limits: { -readonly [K in keyof SessionLimits]: number } = { ...DEFAULT_SESSION_LIMITS }
  for (const name of Object.keys(limits) as (keyof SessionLimits)[]) {
    const value = given[name]
    if (value === undefined) continue
    if (!Number.isFinite(value) || value <= 0) throw new TypeError(`${name} must be a number above 0`)
    if (name.endsWith('Ms')) checkDuration(name, value)
    limits[name] = value
  }
  if (limits.maxWindowBytes > MAX_WINDOW_BYTES) throw new TypeError(`maxWindowBytes is at most ${MAX_WINDOW_BYTES}`)
  limits.initialWindowBytes = clampWindow(limits.initialWindowBytes)
  limits.pingIntervalMs = Math.min(limits.pingIntervalMs, (limits.pingTimeoutMs * 2) / 3)
  limits.maxWindowBytes = Math.max(limits.maxWindowBytes, limits.initialWindowBytes)
  return limits
}

/** A first window that both ends can count on: 4 KiB to the spec's 256 KiB. */
export function clampWindow(bytes: number): number {
  return Math.min(SPEC_WINDOW_BYTES, Math.max(4 * 1024, Math.floor(bytes)))
}
