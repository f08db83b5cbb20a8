import { areReturned } from '../../protocol/wire/control.ts'
import type { SpanReport } from '../control/returned-spans.ts'

/** What replicas say to each other beside the streams: JSON, one message each. Unknown types are ignored. */
export type PeerMessage =
  /** The first message from both ends: its name, and where it is reached. */
  | { readonly type: 'replica'; readonly name: string; readonly address: string }
  /** The end that accepted tells of an epoch that it was granted, or of what it presumes; see `formatRuntimeState`. */
  | { readonly type: 'standing'; readonly standing: string }
  /**
   * The end that cannot reach the directory asks: have you told all? And from now on: tell me what you hear. `agoMs`: tell
   * first what has changed in so many milliseconds; -1: everything.
   */
  | { readonly type: 'ask'; readonly number: number; readonly agoMs?: number }
  | { readonly type: 'told'; readonly number: number }
  /** The directory is there again. */
  | { readonly type: 'enough' }
  /** The session behind a stream leaves. The stream should finish what would go on for ever. */
  | { readonly type: 'leave'; readonly stream: number }
  /** The end that accepted passes on what a session tells of attempts that were handed over. */
  | ({ readonly type: 'spans' } & SpanReport)
  /**
   * From the end that accepted: the replica stops, and will be granted nothing any more. The answer, alike: it is given
   * nothing more.
   */
  | { readonly type: 'bye' }

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
