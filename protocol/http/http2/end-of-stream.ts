/**
 * Whether the peer has ended a stream with END_STREAM. Only then is a message complete (RFC 9113, section 8.1). If a stream was
 * reset with NO_ERROR, or its session closed, Node ends the readable side just as it does for a complete message.
 *
 * The timing tells them apart: the end that END_STREAM causes is pushed while the stream is still open.
 */
import type { Http2Stream } from 'node:http2'
import { Readable } from 'node:stream'

const WHOLE = Symbol('END_STREAM')

interface Watched extends Http2Stream {
  [WHOLE]?: boolean
}

/** Must be called before anything is read from the stream. */
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
