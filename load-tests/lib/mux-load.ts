/** The loads for a multiplexer alone: short exchanges, and bulk. */
import type { Transport } from '../../protocol/wire/transport.ts'
import { BufferPool } from '../../protocol/wire/yamux/pool.ts'
import type { Session } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'

export const HEAD = Buffer.alloc(300, 'h')
export const ANSWER = Buffer.alloc(1024, 'a')
export const CHUNK = Buffer.alloc(64 * 1024, 'b')
const MAX_QUEUED_BYTES = 512 * 1024

/** Exchanges or MB, and exchanges that ended with the wrong number of bytes. */
export interface Done {
  readonly count: number
  readonly wrong: number
}

/** Runs `work` with the session that opens streams. `onStream` serves them at the other end of the transports. */
export async function withSessions<T>(
  onStream: (stream: Stream) => void,
  [left, right]: readonly [Transport, Transport],
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const pool = new BufferPool()
  const server = createSession(left, { role: 'server', pool })
  const client = createSession(right, { role: 'client', onStream, pool })
  for (const session of [server, client]) session.setPeerLimits({ windowBytes: 64 * 1024 })
  try {
    return await work(server)
  } finally {
    server.close('done')
  }
}

/** Answers with 1 KB once the stream has ended. */
export function answerStream(stream: Stream): void {
  stream.handler = {
    data: chunk => stream.consumed(chunk.length),
    end: () => {
      stream.write(ANSWER)
      stream.end()
    },
    reset: () => {},
    consumed: () => {},
  }
}

export function discardStream(stream: Stream): void {
  stream.handler = {
    data: chunk => stream.consumed(chunk.length),
    end: () => stream.end(),
    reset: () => {},
    consumed: () => {},
  }
}

/** `concurrency` streams at a time, until `isOver`. */
export function exchanges(session: Session, concurrency: number, isOver: () => boolean): Promise<Done> {
  return new Promise(resolve => {
    let count = 0
    let wrong = 0
    let running = concurrency
    const start = (): void => {
      const stream = session.open()
      let bytes = 0
      stream.handler = {
        data: chunk => {
          bytes += chunk.length
          stream.consumed(chunk.length)
        },
        end: () => {
          count++
          if (bytes !== ANSWER.length) wrong++
          if (!isOver()) start()
          else if (--running === 0) resolve({ count, wrong })
        },
        reset: () => wrong++,
        consumed: () => {},
      }
      stream.write(HEAD)
      stream.end()
    }
    for (let i = 0; i < concurrency; i++) start()
  })
}

/** One stream, in chunks of 64 KiB. */
export function bulk(session: Session, isOver: () => boolean): Promise<Done> {
  return new Promise(resolve => {
    let acknowledged = 0
    const stream = session.open()
    const fill = (): void => {
      while (stream.queuedBytes < MAX_QUEUED_BYTES) stream.write(CHUNK)
    }
    stream.handler = {
      data: () => {},
      end: () => resolve({ count: acknowledged / 1e6, wrong: 0 }),
      reset: () => resolve({ count: acknowledged / 1e6, wrong: 1 }),
      consumed: bytes => {
        acknowledged += bytes
        if (isOver()) stream.end()
        else fill()
      },
    }
    fill()
  })
}
