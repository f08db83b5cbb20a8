import type { Writable } from 'node:stream'

/** Writes and resolves when there is room for more, or when the stream is gone. */
export function write(stream: Writable, bytes: string | Buffer): Promise<void> {
  if (stream.write(bytes) || stream.destroyed) return Promise.resolve()
  return new Promise(resolve => {
    const done = () => {
      stream.off('drain', done)
      stream.off('close', done)
      resolve()
    }
    stream.on('drain', done).on('close', done)
  })
}
