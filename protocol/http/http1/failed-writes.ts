/**
 * Keeps a socket readable after the peer's reset has made a write fail. What the peer sent before the reset is still in the
 * kernel and can be read to the end, but Node destroys the socket when the write fails, and loses it.
 */
import type { Duplex } from 'node:stream'

type Written = (error?: Error | null) => void

/** The errors by which the kernel says that the peer accepts no more bytes. Such a connection ends by itself once it has been read. */
const RESET: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET'])

/** `onFailed` is called for each write that met a reset. For the stream, that write succeeded. Other errors are handled as usual. */
export function outliveFailedWrites(socket: Duplex, onFailed: (error: Error) => void): void {
  const written = (done: Written): Written => {
    return error => {
      if (!RESET.has((error as NodeJS.ErrnoException | null | undefined)?.code)) return done(error)
      onFailed(error!)
      done()
    }
  }
  const { _write: write, _writev: writev } = socket
  socket._write = (chunk, encoding, done) => write.call(socket, chunk, encoding, written(done))
  if (typeof writev === 'function') socket._writev = (chunks, done) => writev.call(socket, chunks, written(done))
}
