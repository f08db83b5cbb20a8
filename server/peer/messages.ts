import { areReturned } from '../../protocol/wire/control.ts'
import type { SpanReport } from '../control/returned-spans.ts'

/** Messages between replicas, beside the streams: JSON, one object per message. Unknown types are ignored. */
export type PeerMessage =
  /** The first message from each end: its name, and the address at which it can be reached. */
  | { readonly type: 'replica'; readonly name: string; readonly address: string }
  /** From the end that accepted: the state of a runtime, granted or presumed; see `formatRuntimeState`. */
  | { readonly type: 'standing'; readonly standing: string }
  /**
   * From the end that cannot reach the directory: have you told me everything? Also asks to be told all news from now on. With `agoMs`,
   * the other end first tells what has changed in that many milliseconds; -1 means everything.
   */
  | { readonly type: 'ask'; readonly number: number; readonly agoMs?: number }
  | { readonly type: 'told'; readonly number: number }
  /**
   * From the end that cannot reach the directory: what do you know about this runtime? The same message as the answer, with the state if
   * the other end may act on it. Older replicas do not answer.
   */
  | { readonly type: 'about'; readonly runtime: string; readonly standing?: string }
  /** The directory can be reached again, so no more news is needed. */
  | { readonly type: 'enough' }
  /** The session behind a stream is about to end. Exchanges that would go on forever should end. */
  | { readonly type: 'leave'; readonly stream: number }
  /** From the end that accepted: spans that a session returned for attempts that were handed over. */
  | ({ readonly type: 'spans' } & SpanReport)
  /**
   * From the end that accepted: the replica is stopping, and will be granted nothing any more. The same message as the answer: it will
   * be given no more exchanges.
   */
  | { readonly type: 'bye' }

/** No runtime or host has a longer name. */
const MAX_NAME_CHARS = 255

export function parsePeerMessage(text: string): PeerMessage | undefined {
  let message: Record<string, unknown>
  try {
    message = JSON.parse(text) as Record<string, unknown>
  } catch {
    return undefined
  }
  const { type, name, address, standing, number, agoMs, stream, session, runtime, rttMs, requests } = message ?? {}
  switch (type) {
    case 'replica':
      return typeof name === 'string' && typeof address === 'string' ? { type, name, address } : undefined
    case 'standing':
      return typeof standing === 'string' ? { type, standing } : undefined
    case 'ask':
      if (typeof number !== 'number') return undefined
      return typeof agoMs === 'number' ? { type, number, agoMs } : { type, number }
    case 'told':
      return typeof number === 'number' ? { type, number } : undefined
    case 'about':
      if (typeof runtime !== 'string' || runtime.length > MAX_NAME_CHARS) return undefined
      return typeof standing === 'string' ? { type, runtime, standing } : { type, runtime }
    case 'leave':
      return typeof stream === 'number' ? { type, stream } : undefined
    case 'spans':
      if (typeof session !== 'string' || typeof runtime !== 'string' || typeof rttMs !== 'number') return undefined
      return areReturned(requests) ? { type, session, runtime, rttMs, requests } : undefined
    case 'enough':
    case 'bye':
      return { type }
    default:
      return undefined
  }
}
