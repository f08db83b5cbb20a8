/** Ends a stream in a way that cannot be taken for a clean end. */
import type { Http2Stream } from 'node:http2'
import { addAbortSignal } from 'node:stream'

/**
 * RST_STREAM with CANCEL: nobody wants the exchange any more.
 *
 * `Http2Stream.close(code)` would end the writable side first; where no trailers are awaited, the peer then gets DATA with
 * END_STREAM and no reset: a body that was cut looks whole. Destroying the stream sends the reset alone.
 */
export function cancelStream(stream: Http2Stream): void {
  if (!stream.destroyed) addAbortSignal(AbortSignal.abort(), stream)
}

/** RST_STREAM with INTERNAL_ERROR: the message is broken. */
export function breakStream(stream: Http2Stream): void {
  if (!stream.destroyed) stream.destroy(new Error('broken'))
}
