/** What an admitted client may try: floods of streams and frames, invalid windows, not reading at all. */
import { Flag, FrameType } from '../../../protocol/wire/yamux/frame.ts'
import { frame } from '../../protocol/wire/yamux/support.ts'
import { Http1Caller } from '../../support/caller-http1.ts'
import { type Attack, each, scaled } from '../attack.ts'
import { RawClient } from '../raw-client.ts'

const LOT = 500

function lotOf(make: (n: number) => Buffer): (lot: number) => Buffer {
  return lot => Buffer.concat(Array.from({ length: LOT }, (_, i) => make(lot * LOT + i)))
}

/** `count` sessions in sequence. Each floods until it is ended. */
function sessionFlood(name: string, sessions: number, lots: number, make: (n: number) => Buffer): Attack {
  return {
    name,
    round: (world, share) =>
      each(scaled(sessions, share), 2, async () => {
        const client = await RawClient.connect(world, 'bad')
        await client.flood(lots, lotOf(make))
        await client.end()
      }),
  }
}

/** Exceeds the window as soon as the server has opened a stream. */
function windowTrick(name: string, trick: (id: number) => Buffer): Attack {
  return {
    name,
    round: (world, share) =>
      each(scaled(40, share), 1, async () => {
        const client = await RawClient.connect(world, 'bad')
        client.onFrame = ({ type, id }) => {
          if (type === FrameType.data) client.send(trick(id))
        }
        const caller = await Http1Caller.connect(world.place('bad'))
        caller.ask({ path: '/window' }).catch(() => {})
        await client.gone
        caller.close()
      }),
  }
}

const ack = (id: number) => frame(FrameType.windowUpdate, Flag.ack, id, 0)

const resets: Attack = {
  name: 'every stream reset',
  async prepare(world) {
    const client = await RawClient.connect(world, 'bad')
    client.onFrame = ({ type, id }) => {
      if (type === FrameType.data) client.send(frame(FrameType.windowUpdate, Flag.rst, id, 0))
    }
    return () => client.end()
  },
  round: (world, share) =>
    each(scaled(2_000, share), 8, async n => {
      const caller = await Http1Caller.connect(world.place('bad'))
      await caller.ask({ path: `/${n}` }).catch(() => {})
      caller.close()
    }),
}

/** The session ends when its writes have been blocked for 10 s. */
const neverReads: Attack = {
  name: 'a client that never reads',
  slow: true,
  async round(world, share) {
    const client = await RawClient.connect(world, 'bad')
    const callers: Http1Caller[] = []
    const body = Buffer.alloc(256 * 1024)
    const ended = world.sessionEnded('bad')
    client.ws.pause()
    await each(scaled(400, share), 20, async n => {
      const caller = await Http1Caller.connect(world.place('bad'))
      callers.push(caller)
      caller.ask({ method: 'POST', path: `/${n}`, body }).catch(() => {})
    })
    await ended
    for (const caller of callers) caller.close()
    await client.end()
  },
}

const controlMessages: Attack = {
  name: 'control message flood',
  round: (world, share) =>
    each(scaled(8, share), 2, async () => {
      const client = await RawClient.connect(world, 'bad')
      const text = JSON.stringify({ type: 'unheard-of', filling: 'x'.repeat(16_000) })
      for (let n = 0; n < 500 && !client.closed; n++) {
        await Promise.race([new Promise(resolve => client.ws.send(text, resolve)), client.gone])
      }
      await client.end()
    }),
}

export const SESSION_ATTACKS: readonly Attack[] = [
  sessionFlood('SYN flood', 20, 100, n => frame(FrameType.windowUpdate, Flag.syn, (2 * n + 1) % 2 ** 31, 0)),
  sessionFlood('RST flood', 20, 100, n => frame(FrameType.windowUpdate, Flag.rst, 2 * n + 2, 0)),
  sessionFlood('yamux ping flood', 10, 100, n => frame(FrameType.ping, Flag.syn, 0, n)),
  windowTrick('window overflow', id =>
    Buffer.concat([ack(id), ...Array.from({ length: 2 }, () => frame(FrameType.windowUpdate, 0, id, 0xffff_ffff))]),
  ),
  windowTrick('more than the window', id =>
    Buffer.concat([ack(id), frame(FrameType.data, 0, id, Buffer.alloc(300 * 1024)).subarray(0, 100_000)]),
  ),
  resets,
  controlMessages,
  neverReads,
]
