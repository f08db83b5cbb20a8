/** What a server says about a stream, read from its frames. */
import type { RawPeer } from '../protocol/http/http1/raw.ts'
import { END_STREAM, framesOf, TYPE } from './http2-frames.ts'

/** A status, how the stream was reset, or how the session ended before either. */
export interface Outcome {
  readonly status?: number
  readonly reset?: number
  readonly goaway?: number
  readonly body: string
}

/** Waits until the server has said its last about a stream. */
export async function outcomeOf(peer: RawPeer, stream: number): Promise<Outcome> {
  for (;;) {
    const frames = framesOf(Buffer.from(peer.text, 'latin1'))
    const mine = frames.filter(one => one.stream === stream)
    const body = mine.flatMap(one => (one.type === TYPE.data ? [one.payload.toString()] : [])).join('')
    const head = mine.find(one => one.type === TYPE.headers)
    const reset = mine.find(one => one.type === TYPE.reset)?.payload.readUInt32BE(0)
    const ended = mine.some(one => one.type <= TYPE.headers && (one.flags & END_STREAM) !== 0)
    const goaway = frames.find(one => one.type === TYPE.goaway)?.payload.readUInt32BE(4)
    const known = {
      body,
      ...(head === undefined ? {} : { status: statusOf(head.payload) }),
      ...(reset === undefined ? {} : { reset }),
    }
    if (ended || reset !== undefined) return known
    if (peer.closed || peer.ended) return { ...known, ...(goaway === undefined ? {} : { goaway }) }
    const seen = peer.text.length
    await peer.until(text => text.length > seen || peer.ended).catch(() => {})
  }
}

const INDEXED: Readonly<Record<number, number>> = { 8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500 }

/** `:status` is first in a response's block: an index of the static table, or a literal that may be Huffman-coded. */
export function statusOf(payload: Buffer): number {
  // Changes of the table's size may stand before it.
  let at = 0
  while ((payload[at]! & 0xe0) === 0x20) at++
  const first = payload[at]!
  if (first & 0x80) return INDEXED[first & 0x7f] ?? 0
  const length = payload[at + 1]!
  const value = payload.subarray(at + 2, at + 2 + (length & 0x7f))
  return Number(length & 0x80 ? huffmanDigits(value) : value.toString())
}

/** Digits alone: 0 to 2 have codes of five bits, 3 to 9 of six (RFC 7541, appendix B). */
function huffmanDigits(bytes: Buffer): string {
  const bits = [...bytes].map(byte => byte.toString(2).padStart(8, '0')).join('')
  let text = ''
  for (let at = 0; at + 5 <= bits.length; ) {
    const five = Number.parseInt(bits.slice(at, at + 5), 2)
    const six = Number.parseInt(bits.slice(at, at + 6), 2)
    if (five <= 2) {
      text += five
      at += 5
    } else if (six >= 25 && six <= 31) {
      text += six - 22
      at += 6
    } else break
  }
  return text
}
