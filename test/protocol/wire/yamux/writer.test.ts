import { beforeEach, describe, expect, test } from 'vitest'
import { collectGarbage } from '../../../../load-tests/lib/garbage.ts'
import type { Transport } from '../../../../protocol/wire/transport.ts'
import { Flag, FrameType, HEADER_BYTES } from '../../../../protocol/wire/yamux/frame.ts'
import { RESETS_OF_STRANGERS } from '../../../../protocol/wire/yamux/limits.ts'
import { BufferPool } from '../../../../protocol/wire/yamux/pool.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import { until } from '../../../support/until.ts'
import { linkPair } from './link.ts'
import {
  echo,
  FakeClock,
  frame,
  pattern,
  type RawPeer,
  StreamRecorder,
  sessionPair,
  sessionWithRawPeer,
  turns,
} from './support.ts'

const KIB = 1024
const MIB = 1024 * KIB

/** Notices a buffer that is in use twice, or given back twice. */
class WatchedPool extends BufferPool {
  takes = 0
  /** And not given back. */
  readonly taken = new Set<Buffer>()

  override take(): Buffer {
    const buffer = super.take()
    expect(this.taken.has(buffer)).toBe(false)
    this.taken.add(buffer)
    this.takes++
    return buffer
  }

  override give(buffer: Buffer): void {
    expect(this.taken.delete(buffer)).toBe(true)
    super.give(buffer)
  }
}

/** A stream that always has more to send. */
function greedy(stream: Stream, chunkBytes = 64 * KIB): StreamRecorder {
  const recorder = new StreamRecorder(stream)
  const fill = (): void => {
    while (stream.queuedBytes < MIB) stream.write(new Uint8Array(chunkBytes))
  }
  recorder.consumed = bytes => {
    recorder.sentBytes += bytes
    fill()
  }
  fill()
  return recorder
}

describe('writer', () => {
  test('heads go before bodies that waited longer', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    peer.answersPings = false
    for (let i = 0; i < 3; i++) greedy(session.open())
    await turns()
    const before = peer.frames.length
    const head = session.open()
    head.write(Buffer.from('head'))
    head.end()
    await until(() => peer.frames.length > before)
    // The bodies have filled what they may have in flight; the head needs no answer to leave.
    expect(peer.frames.slice(before).map(({ id }) => id)).toEqual([head.id, head.id])
  })

  test('eight small messages do not wait for the end of the turn; fewer do', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const written: number[] = []
    const say = async (streams: number) => {
      for (let i = 0; i < streams; i++) session.open().write(Buffer.from('small'))
      await new Promise<void>(resolve => process.nextTick(resolve))
      written.push(session.bytesOut)
    }
    await say(7)
    expect(written[0]).toBeCloseTo(0)
    await say(1)
    expect(written[1]).toBeGreaterThanOrEqual(8 * (HEADER_BYTES + 5))
    await until(() => peer.streamFrames.length === 8)
    expect(peer.streamFrames.map(({ id }) => id)).toEqual([2, 4, 6, 8, 10, 12, 14, 16])
  })

  test('bodies take turns in frames of at most 16 KiB; one alone sends up to 64 KiB', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const first = session.open()
    first.write(pattern(128 * KIB))
    await until(() => peer.streamFrames.length >= 2)
    expect(peer.streamFrames.map(({ length }) => length)).toEqual([64 * KIB, 64 * KIB])
    const streams = Array.from({ length: 3 }, () => session.open())
    for (const stream of streams) stream.write(pattern(48 * KIB))
    await until(() => streams.every(({ queuedBytes }) => queuedBytes === 0))
    await turns()
    const ids = peer.streamFrames.filter(({ id }) => id !== first.id).map(({ id }) => id)
    const lengths = peer.streamFrames.filter(({ id }) => id !== first.id).map(({ length }) => length)
    const [a, b, c] = streams.map(({ id }) => id)
    expect(ids.slice(0, 6)).toEqual([a, b, c, a, b, c])
    expect(Math.max(...lengths)).toBe(16 * KIB)
  })

  /** Whenever its message has left, the next one comes a few turns later. */
  function talkative(stream: Stream): void {
    const send = (): void => stream.write(pattern(8 * KIB))
    new StreamRecorder(stream).consumed = () => {
      if (stream.queuedBytes === 0) void turns(4).then(send)
    }
    send()
  }

  test.each([
    ['runtime', 'has many streams with long bodies', greedy],
    ['runtime', 'has many streams that send short messages all the time', talkative],
    ['network', 'has many streams with long bodies', greedy],
    ['network', 'has many streams that send short messages all the time', talkative],
  ])('a %s that %s leaves others their turns', async (who, _, beGreedy) => {
    let arrived = 0
    const onStream = (stream: Stream) => {
      new StreamRecorder(stream).data = ({ length }) => {
        arrived += length
        stream.consumed(length)
      }
    }
    const { server } = sessionPair({}, { onStream })
    const open = (number: number): Stream => {
      const stream = server.open()
      if (who === 'runtime') stream.paidBy(`runtime-${number}`, '192.0.2.1')
      else stream.paidBy('runtime-1', `192.0.2.${number}`)
      return stream
    }
    const others = Array.from({ length: 200 }, () => open(1))
    for (const stream of others) beGreedy(stream)
    await until(() => arrived > 4 * MIB)
    const before = arrived
    const polite = open(2)
    polite.write(pattern(256 * KIB))
    await until(() => polite.queuedBytes === 0)
    for (const stream of others) stream.reset('cancelled')
    // With turns by stream it would be 50 MiB.
    expect(arrived - before).toBeLessThan(4 * MIB)
  })

  test('large chunks are not copied', async () => {
    const written: Uint8Array[] = []
    const transport: Transport = {
      peer: '',
      handler: undefined,
      bytes: chunk => written.push(chunk),
      control: () => {},
      close: () => {},
      terminate: () => {},
    }
    const session = createSession(transport, { role: 'server' })
    const body = pattern(100 * KIB)
    session.open().write(body)
    await until(() => written.length >= 3)
    const parts = written.filter(chunk => chunk.buffer === body.buffer)
    expect(parts.reduce((sum, { length }) => sum + length, 0)).toBe(100 * KIB)
    session.close('done')
  })

  describe('B1 while the transport is busy', () => {
    test('small writes share buffers, and leave once it takes more', async () => {
      const { session, peer } = sessionWithRawPeer({ role: 'server' })
      const stream = session.open()
      peer.transport.pause()
      for (let i = 0; i < 1_000; i++) {
        stream.write(String.fromCharCode(32 + (i % 90)))
        await turns(1)
      }
      stream.end()
      await turns()
      peer.transport.resume()
      await until(() => peer.streamFrames.at(-1)?.flags === Flag.fin, 'the end')
      expect(peer.writes.length).toBeLessThan(10)
      const sent = Array.from({ length: 1_000 }, (_, i) => String.fromCharCode(32 + (i % 90)))
      const frames = peer.streamFrames.filter(({ type }) => type === FrameType.data)
      expect(Buffer.concat(frames.map(({ payload }) => payload)).toString()).toBe(sent.join(''))
    })

    test('a control message does not overtake what waits for more', async () => {
      const { session, peer } = sessionWithRawPeer({ role: 'server' })
      peer.transport.pause()
      const [first, second] = [session.open(), session.open()]
      first.write('first')
      await turns()
      second.write('second')
      await turns()
      session.control({ type: 'said' })
      peer.transport.resume()
      await until(() => peer.controls.length > 0, 'the message')
      expect(peer.streamFrames.map(({ payload }) => String(payload))).toEqual(['first', 'second'])
    })

    test('nor does the reason of a reset overtake its stream', async () => {
      const resets: string[] = []
      const onStream = (stream: Stream) => {
        stream.handler = { data() {}, end() {}, reset: code => void resets.push(`${stream.id} ${code}`), consumed() {} }
      }
      const { server, clientTransport } = sessionPair({}, { onStream })
      clientTransport.pause()
      const [first, second] = [server.open(), server.open()]
      first.write('first')
      await turns()
      second.write('second')
      await turns()
      second.reset('timeout')
      clientTransport.resume()
      await until(() => resets.length > 0, 'the reset')
      expect(resets).toEqual([`${second.id} timeout`])
    })

    test('however many streams there may be, all are reset at once', async () => {
      const limits = { maxStreams: 20_000, backlog: 20_000, ...RESETS_OF_STRANGERS }
      const streams: Stream[] = []
      const { server, client } = sessionPair(limits, { ...limits, onStream: stream => void streams.push(stream) })
      const told = Array.from({ length: limits.maxStreams }, () => new StreamRecorder(server.open()))
      server.announce()
      await until(() => streams.length === limits.maxStreams, 'the streams')
      for (const stream of streams) stream.reset('limit')
      await until(() => told.every(({ resetWith }) => resetWith !== undefined), 'the resets')
      expect(new Set(told.map(({ resetWith }) => resetWith))).toEqual(new Set(['limit']))
      expect([server.closed, client.closed, server.streams, client.streams]).toEqual([false, false, 0, 0])
    })

    test('control messages between small writes keep no large buffers', async () => {
      const pool = new WatchedPool()
      const { session, peer } = sessionWithRawPeer({ role: 'server', pool })
      peer.transport.pause()
      const stream = session.open()
      for (let i = 0; i < 100; i++) {
        stream.write('.')
        session.control({ type: 'said' })
      }
      expect(pool.taken.size).toBeLessThan(3)
      peer.transport.resume()
      await until(() => peer.controls.length === 100, 'the messages')
      expect(pool.taken.size).toBe(0)
    })
  })

  describe('B1 a small part of a large buffer is copied', () => {
    /** What the peer gets of a part if the rest of its buffer is used for something else meanwhile. */
    async function received(peer: RawPeer, stream: Stream, release: () => void): Promise<string> {
      const buffer = Buffer.alloc(64 * KIB, 'own')
      stream.write(buffer.subarray(0, 300))
      await turns()
      buffer.fill('not')
      release()
      await until(() => stream.queuedBytes === 0)
      await turns()
      const frames = peer.streamFrames.filter(({ id }) => id === stream.id)
      return Buffer.concat(frames.map(({ payload }) => payload))
        .subarray(-300)
        .toString()
    }

    test.each([0, 100])('if it waits for credit after %d bytes', async bytes => {
      const { session, peer } = sessionWithRawPeer({ role: 'server', initialWindowBytes: 4 * KIB })
      const stream = session.open()
      stream.write('x'.repeat(4 * KIB - bytes))
      await turns()
      const credit = () => peer.send(frame(FrameType.windowUpdate, Flag.ack, stream.id, KIB))
      expect(await received(peer, stream, credit)).toBe('own'.repeat(100))
    })

    /** Answers the pings so far, so that the path has room again. */
    function answer(peer: RawPeer): void {
      peer.answersPings = true
      const pings = peer.frames.filter(({ type }) => type === FrameType.ping)
      peer.send(...pings.map(({ length }) => frame(FrameType.ping, Flag.ack, 0, length)))
    }

    test.each([0, 6])('if the path has had no room for %d turns', async count => {
      const { session, peer } = sessionWithRawPeer({ role: 'server' })
      peer.answersPings = false
      for (let i = 0; i < 40; i++) session.open().write(pattern(8 * KIB))
      await turns(count)
      expect(await received(peer, session.open(), () => answer(peer))).toBe('own'.repeat(100))
    })

    test('if the path has room for heads alone', async () => {
      const { session, peer } = sessionWithRawPeer({ role: 'server' })
      peer.answersPings = false
      const stream = session.open()
      session.open().write(pattern(236 * KIB))
      await turns()
      stream.write('head')
      await turns(1)
      stream.write('body')
      await turns(1)
      expect(stream.queuedBytes).toBe(4)
      expect(await received(peer, stream, () => answer(peer))).toBe('own'.repeat(100))
    })
  })

  test('a buffer returns to its pool in the callback of its write, never earlier', async () => {
    const pool = new WatchedPool()
    const { taken } = pool
    const writes: { chunk: Uint8Array; copy: Buffer; sent: () => void }[] = []
    const transport: Transport = {
      peer: '',
      handler: undefined,
      bytes: (chunk, sent) => writes.push({ chunk, copy: Buffer.from(chunk), sent }),
      control: () => {},
      close: () => {},
      terminate: () => {},
    }
    const session = createSession(transport, { role: 'server', pool })
    for (let i = 0; i < 6; i++) {
      for (let j = 0; j < 3; j++) session.open().write(pattern(12 * KIB, i))
      await turns(2)
    }
    expect([writes.length, taken.size]).toEqual([6, 6])
    for (const { chunk, copy } of writes) expect(Buffer.from(chunk).equals(copy)).toBe(true)
    for (const { sent } of writes) sent()
    expect(taken.size).toBe(0)
    session.open().write(pattern(500))
    await turns(2)
    expect(taken.size).toBe(1)
    session.close('done')
  })

  test('a ping takes no buffer from the pool; what follows it in the turn leaves with it, in order', async () => {
    const pool = new WatchedPool()
    const { session, peer } = sessionWithRawPeer({ role: 'server', pool })
    peer.answersPings = false
    session.ping(() => {})
    await turns(2)
    expect([peer.writes, pool.takes]).toEqual([[HEADER_BYTES], 0])
    session.ping(() => {})
    const body = pattern(5000)
    session.open().write(body)
    await turns(2)
    expect([peer.writes, pool.takes]).toEqual([[HEADER_BYTES, 2 * HEADER_BYTES + 5000], 1])
    expect(peer.frames.map(({ type }) => type)).toEqual([FrameType.ping, FrameType.ping, FrameType.data])
    expect(peer.frames[2]!.payload.equals(body)).toBe(true)
    for (let i = 0; i < 30; i++) session.ping(() => {})
    await turns(2)
    expect(peer.writes.slice(2).reduce((sum, bytes) => sum + bytes, 0)).toBe(30 * HEADER_BYTES)
  })

  test('never more than 256 KiB in flight until a ping that was placed behind is answered', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    peer.answersPings = false
    for (let i = 0; i < 4; i++) greedy(session.open())
    await turns(20)
    expect(session.bytesOut).toBeGreaterThan(200 * KIB)
    expect(session.bytesOut).toBeLessThanOrEqual(256 * KIB)
    const stuckAt = session.bytesOut
    await turns(20)
    expect(session.bytesOut).toBe(stuckAt)
    const ping = peer.frames.find(({ type, flags }) => type === FrameType.ping && flags === Flag.syn)!
    peer.send(frame(FrameType.ping, Flag.ack, 0, ping.length))
    await until(() => session.bytesOut > stuckAt)
  })

  test('pings behind bulk: at most one per 32 KiB', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const bulk = [greedy(session.open()), greedy(session.open())]
    for (const { stream } of bulk) peer.send(frame(FrameType.windowUpdate, Flag.ack, stream.id, 16 * MIB))
    await until(() => session.bytesOut > 8 * MIB)
    const pings = peer.frames.filter(({ type }) => type === FrameType.ping).length
    expect(pings).toBeGreaterThan(8)
    expect(pings).toBeLessThanOrEqual(session.bytesOut / (32 * KIB) + 1)
    session.close('done')
  })

  test('one stream fills 100 Mbit/s at 50 ms: its window and the limit grow', async () => {
    const clock = new FakeClock()
    const [left, right] = linkPair({ clock, bytesPerMs: 12_500, rttMs: 50 })
    const server = createSession(left, { role: 'server', clock })
    const client = createSession(right, { role: 'client', clock, onStream: stream => new StreamRecorder(stream) })
    for (const session of [server, client]) session.setPeerLimits({ windowBytes: 64 * KIB })
    greedy(server.open())
    await clock.advance(2_000)
    const before = client.bytesIn
    await clock.advance(2_000)
    expect((client.bytesIn - before) / 2_000).toBeGreaterThan(0.9 * 12_500)
  })

  test('B1 a peer that stops reading keeps at most 512 KiB here, however much its path accepts', async () => {
    const clock = new FakeClock()
    const [left, right] = linkPair({ clock, bytesPerMs: 100_000, rttMs: 100, kernelBytes: 64 * MIB })
    let unsentBytes = 0
    let stopped = false
    const transport: Transport = {
      ...{ peer: '', control() {}, close() {}, terminate() {} },
      get handler() {
        return left.handler
      },
      set handler(handler) {
        left.handler = handler
      },
      bytes(chunk, sent) {
        unsentBytes += chunk.length
        if (stopped) return
        left.bytes(chunk, () => {
          unsentBytes -= chunk.length
          sent()
        })
      },
    }
    const server = createSession(transport, { role: 'server', clock })
    const client = createSession(right, { role: 'client', clock, onStream: stream => new StreamRecorder(stream) })
    for (let i = 0; i < 4; i++) greedy(server.open())
    await clock.advance(4_000)
    expect(server.bytesOut - client.bytesIn).toBeGreaterThan(4 * MIB)
    stopped = true
    await clock.advance(500)
    expect(unsentBytes).toBeGreaterThan(0)
    expect(unsentBytes).toBeLessThanOrEqual(512 * KIB)
  })

  test('a small exchange beside bulk on a slow path waits for what is in flight, not for what the kernel accepts', async () => {
    const clock = new FakeClock()
    const [left, right] = linkPair({ clock, bytesPerMs: 1_250, rttMs: 40 })
    const server = createSession(left, { role: 'server', clock })
    const client = createSession(right, {
      role: 'client',
      clock,
      onStream: stream => (stream.id === 2 ? new StreamRecorder(stream) : echo(stream)),
    })
    greedy(server.open())
    await clock.advance(5_000)
    expect(client.bytesIn).toBeGreaterThan(0.8 * 5_000 * 1_250)
    for (let i = 0; i < 5; i++) {
      const small = new StreamRecorder(server.open())
      small.stream.write(Buffer.from('GET /'))
      small.stream.end()
      const began = clock.now()
      while (!small.ended) await clock.advance(10)
      // 256 KiB at 1,250 bytes a millisecond, and the round trip. The kernel's 4 MiB would be 3.3 s.
      expect(clock.now() - began).toBeLessThan(300)
    }
  })

  test('one session carries many bulk streams fairly', async () => {
    const { server } = sessionPair({}, { onStream: stream => new StreamRecorder(stream) })
    const streams = Array.from({ length: 5 }, () => greedy(server.open()))
    await until(() => streams.some(({ sentBytes }) => sentBytes > 20 * MIB))
    const sent = streams.map(({ sentBytes }) => sentBytes)
    expect(Math.min(...sent) / Math.max(...sent)).toBeGreaterThan(0.5)
    server.close('done')
  })

  describe('B1 while a peer takes nothing, few streams that are over are kept', () => {
    let refs: WeakRef<Stream>[]
    beforeEach(() => {
      refs = []
    })
    const watched = (stream: Stream): Stream => {
      refs.push(new WeakRef(stream))
      return stream
    }
    const kept = async (): Promise<number> => {
      await collectGarbage()
      return refs.filter(ref => ref.deref() !== undefined).length
    }

    /** A session that may send nothing more. */
    async function stuck() {
      const { session, peer } = sessionWithRawPeer({ role: 'server' })
      peer.answersPings = false
      greedy(session.open())
      await turns()
      return session
    }

    test.each([
      ['that have something to send', (stream: Stream) => stream.write(pattern(100))],
      ['that only end', (stream: Stream) => stream.end()],
      ['that say nothing', () => {}],
    ])('streams of ours %s', async (_which, send) => {
      const session = await stuck()
      // Those that find no room wait before all others, and stay.
      for (let i = 0; i < 50; i++) session.open().write(pattern(KIB))
      await turns()
      for (let i = 0; i < 1_000; i++) {
        const stream = watched(session.open())
        send(stream)
        await turns(1)
        stream.reset('cancelled')
      }
      expect(await kept()).toBeLessThan(200)
      session.close('done')
    })

    test('streams of ours whose bodies have begun', async () => {
      const session = await stuck()
      for (let i = 0; i < 200; i++) {
        const stream = watched(session.open())
        stream.write(pattern(100))
        await turns(1)
        stream.write(pattern(100))
        stream.reset('cancelled')
      }
      expect(await kept()).toBeLessThan(100)
      session.close('done')
    })

    test('streams of the peer', async () => {
      const onStream = (stream: Stream) => void watched(stream)
      const { session, peer } = sessionWithRawPeer({ role: 'client', onStream, ...RESETS_OF_STRANGERS })
      peer.transport.pause()
      // So many answers to pings that even acknowledgements wait.
      for (let i = 0; i < 45; i++) {
        peer.send(...Array.from({ length: 1_000 }, () => frame(FrameType.ping, Flag.syn, 0, i)))
        await turns(2)
      }
      for (let i = 1; i <= 1_000; i++) {
        const [opened, reset] = [Flag.syn, Flag.rst].map(flag => frame(FrameType.windowUpdate, flag, 2 * i, 0))
        peer.send(opened!, reset!)
        await turns(1)
      }
      await turns()
      expect([session.closed, session.streams, refs.length]).toEqual([false, 0, 1_000])
      expect(await kept()).toBeLessThan(200)
      session.close('done')
    })
  })
})
