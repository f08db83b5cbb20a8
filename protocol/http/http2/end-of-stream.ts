/**
 * Whether the peer has ended a stream with END_STREAM. Node ends the readable side of a stream that was reset with
 * NO_ERROR, or whose session closed, just like that of a whole one; a message is whole with END_STREAM alone (RFC 9113,
 * section 8.1).
 *
 * What tells them apart is the moment: the end that END_STREAM makes is pushed while the stream is still open.
 */
import type { Http2Stream } from 'node:http2'
import { Readable } from 'node:stream'

const WHOLE = Symbol('END_STREAM')

interface Watched extends Http2Stream {
  [WHOLE]?: boolean
}

/** To be called before anything of the stream is read. */
export function watchEnd(stream: Http2Stream): void {
  stream.push = push
}

export function hasEnded(stream: Http2Stream): boolean {
  return (stream as Watched)[WHOLE] === true
}

function push(this: Watched, chunk: unknown, encoding?: BufferEncoding): boolean {
  if (chunk === null && !this.closed) this[WHOLE] = true
  return Readable.prototype.push.call(this, chunk, encoding)
}
