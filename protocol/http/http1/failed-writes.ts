/**
 * A socket that goes on reading after the peer's reset has made a write fail. What the peer sent before the reset stands in
 * the kernel, and can be read until the end; Node destroys the socket at the failed write and loses it.
 */
import type { Duplex } from 'node:stream'

type Written = (error?: Error | null) => void

/** How the kernel says that the peer takes nothing any more. Such a connection ends by itself when it has been read. */
const RESET: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET'])

/** `onFailed` is called for each write that met a reset; for the stream, it was written. Other errors are as usual. */
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
