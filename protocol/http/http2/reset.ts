/** Ends a stream so that nobody can mistake it for a clean end. */
import type { Http2Stream } from 'node:http2'
import { addAbortSignal } from 'node:stream'

/**
 * RST_STREAM with CANCEL: nobody wants the exchange any more.
 *
 * `Http2Stream.close(code)` would end the writable side first. If no trailers are pending, the peer then receives DATA with
 * END_STREAM and no reset, and a truncated body looks complete. Destroying the stream sends only the reset.
 */
export function cancelStream(stream: Http2Stream): void {
  if (!stream.destroyed) addAbortSignal(AbortSignal.abort(), stream)
}

/** RST_STREAM with INTERNAL_ERROR: the message is broken. */
export function breakStream(stream: Http2Stream): void {
  if (!stream.destroyed) stream.destroy(new Error('broken'))
}
