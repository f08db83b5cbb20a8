/** Statements M1 to M10 in security.md: a hostile yamux peer ends its own session, never the process. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Flag, FrameType, GoAwayCode } from '../../protocol/wire/yamux/frame.ts'
import { RESETS_OF_STRANGERS } from '../../protocol/wire/yamux/limits.ts'
import type { SessionOptions } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import {
  cutArrivals,
  echo,
  FakeClock,
  frame,
  pattern,
  StreamRecorder,
  sessionPair,
  sessionWithRawPeer,
  turns,
} from '../protocol/wire/yamux/support.ts'
import { until } from '../support/until.ts'

const KIB = 1024

/** How the session reacts to `frames`: it must send go-away with a protocol error and close with 1002. */
async function expectProtocolError(
  frames: Uint8Array[],
  reason: RegExp,
  options: Partial<SessionOptions> = {},
): Promise<void> {
  const { session, peer, closings } = sessionWithRawPeer({ role: 'client', onStream: echo, ...options })
  peer.send(...frames)
  await until(() => peer.closedWith !== undefined, 'the close')
  expect(peer.frames.at(-1)).toMatchObject({ type: FrameType.goAway, length: GoAwayCode.protocolError })
  expect(peer.closedWith!.code).toBe(1002)
  expect(closings).toHaveLength(1)
  expect(closings[0]!.error!.message).toMatch(reason)
  expect([session.closed, session.streams, session.bufferedBytes]).toEqual([true, 0, 0])
}

const open = (id: number, payload: Uint8Array | number = 0): Buffer =>
  frame(typeof payload === 'number' ? FrameType.windowUpdate : FrameType.data, Flag.syn, id, payload)

describe('M1 bad version, type, flags or ids: go-away and close', () => {
  const bad = (at: number, value: number): Buffer => {
    const bytes = frame(FrameType.ping, Flag.syn, 0, 7)
    bytes[at] = value
    return bytes
  }
  test.each([
    ['version', bad(0, 1), /version/],
    ['type', bad(1, 4), /type/],
    ['unknown flags on a ping', frame(FrameType.ping, 0x11, 0, 7), /flags/],
    ['unknown flags on data', frame(FrameType.data, 0x8000 | Flag.syn, 2, 0), /flags/],
    ['a ping with FIN', frame(FrameType.ping, Flag.fin, 0, 7), /ping/],
    ['a ping without flags', frame(FrameType.ping, 0, 0, 7), /ping/],
    ['a ping with a stream id', frame(FrameType.ping, Flag.syn, 2, 7), /stream id/],
    ['go-away with a stream id', frame(FrameType.goAway, 0, 2, 0), /stream id/],
    ['go-away with flags', frame(FrameType.goAway, Flag.syn, 0, 0), /flags/],
    ['data without a stream id', frame(FrameType.data, 0, 0, Buffer.from('x')), /stream id/],
    ['a window update without a stream id', frame(FrameType.windowUpdate, 0, 0, 5), /stream id/],
    ['data for a stream that nobody opened', frame(FrameType.data, 0, 8, Buffer.from('x')), /nobody opened/],
    ['credit for a stream that we never opened', frame(FrameType.windowUpdate, 0, 7, 5), /nobody opened/],
  ])('M1 %s', (_, bytes, reason) => expectProtocolError([bytes], reason))

  test('M1 any bytes at all: the process never throws, and the session stays open or closes in order', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ minLength: 1, maxLength: 200 }), { maxLength: 8 }), async chunks => {
        const { session, peer, closings } = sessionWithRawPeer({ role: 'client', onStream: echo })
        for (const chunk of chunks) peer.send(chunk)
        await turns()
        expect(closings.length).toBe(session.closed ? 1 : 0)
        session.close('done')
      }),
      { numRuns: 200 },
    )
  })

  test('M1 any frames at all: the process never throws', async () => {
    const anyFrame = fc
      .record({
        type: fc.constantFrom(0, 1, 2, 3) as fc.Arbitrary<FrameType>,
        flags: fc.oneof(fc.constantFrom(0, 1, 2, 4, 8), fc.nat(15)),
        id: fc.nat(8),
        length: fc.oneof(fc.nat(300), fc.nat(0xffff_ffff)),
        payload: fc.uint8Array({ maxLength: 100 }),
      })
      .map(({ type, flags, id, length, payload }) => frame(type, flags, id, type === FrameType.data ? payload : length))
    await fc.assert(
      fc.asyncProperty(fc.array(anyFrame, { maxLength: 30 }), async frames => {
        const { session, peer, closings } = sessionWithRawPeer({ role: 'client', onStream: echo })
        for (const bytes of frames) peer.send(bytes)
        await turns()
        expect(closings.length).toBe(session.closed ? 1 : 0)
        for (const { error } of closings) expect(error).toMatchObject({ reason: 'session-lost' })
        session.close('done')
      }),
      { numRuns: 300 },
    )
  })
})

test('M2 a first frame longer than the window: protocol error before any payload', async () => {
  const before = process.memoryUsage().arrayBuffers
  await expectProtocolError([frame(FrameType.data, Flag.syn, 2, 256 * KIB + 1)], /window exceeded/)
  await expectProtocolError([frame(FrameType.data, Flag.syn, 2, 0xffff_ffff)], /window exceeded/)
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * KIB * KIB)
})

describe('M3 window overflow: protocol error', () => {
  test('M3 credit beyond 32 bits', async () => {
    await expectProtocolError([open(2), frame(FrameType.windowUpdate, 0, 2, 0xffff_ffff)], /window overflow/)
  })
  test('M3 credit in the SYN', async () => {
    await expectProtocolError([frame(FrameType.windowUpdate, Flag.syn, 2, 0xffff_ffff)], /window overflow/)
  })
  test('M3 the sum of many credits', async () => {
    await expectProtocolError(
      [open(2), ...Array.from({ length: 4 }, () => frame(FrameType.windowUpdate, 0, 2, 0x4000_0000))],
      /window overflow/,
    )
  })
})

describe('M4 a peer that stops reading', () => {
  test('M4 the queue is bounded, and the session closes at the write deadline', async () => {
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server', clock })
    peer.transport.pause()
    const streams = Array.from({ length: 20 }, () => session.open())
    for (const stream of streams) stream.write(pattern(200 * KIB))
    await clock.advance(5_000)
    // What has left the queues may be under way; the rest waits where its writer can see it.
    expect(session.bytesOut).toBeLessThanOrEqual(300 * KIB)
    await clock.advance(6_000)
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/stopped reading/) }])
  })

  test('M4 a flood of pings from a peer that does not read the answers', async () => {
    const { session, peer, closings } = sessionWithRawPeer({ role: 'client' })
    peer.transport.pause()
    peer.answersPings = false
    const pings = Buffer.concat(Array.from({ length: 5_000 }, (_, i) => frame(FrameType.ping, Flag.syn, 0, i)))
    for (let i = 0; i < 100 && !session.closed; i++) {
      peer.send(pings)
      await turns(2)
    }
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/more answers than it reads/) }])
    expect(session.bytesOut).toBeLessThan(1024 * KIB)
  })

  test('M4 a flood of streams from a peer that does not read the refusals', async () => {
    const onStream = (stream: Stream) => stream.reset('refused')
    const { session, peer, transport, closings } = sessionWithRawPeer({
      role: 'client',
      onStream,
      ...RESETS_OF_STRANGERS,
    })
    let texts = 0
    transport.control = () => void texts++
    peer.transport.pause()
    for (let id = 2; id < 60_000 && !session.closed; id += 2_000) {
      peer.send(...Array.from({ length: 1_000 }, (_, i) => open(id + 2 * i)))
      await turns(2)
    }
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/more answers than it reads/) }])
    expect(texts).toBeLessThan(10_000)
  })
})

test('M4 answers to pings that the peer has not read release nothing', async () => {
  const { session, peer } = sessionWithRawPeer({ role: 'server' })
  peer.answersPings = false
  const stream = session.open()
  peer.send(frame(FrameType.windowUpdate, Flag.ack, stream.id, 0x0100_0000))
  stream.write(pattern(2_000 * KIB))
  for (let value = 0; value < 5_000; value++) peer.send(frame(FrameType.ping, Flag.ack, 0, value))
  await turns(20)
  expect(session.bytesOut).toBeLessThanOrEqual(256 * KIB)
})

describe('M5 stream floods', () => {
  test('M5 at most 1,000 streams; the next is refused, the others live', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'client', onStream: () => {} })
    for (let i = 1; i <= 1_001; i++) peer.send(open(2 * i, Buffer.from('x')))
    await until(() => peer.controls.length > 0)
    expect(session.streams).toBe(1_000)
    expect(JSON.parse(peer.controls[0]!)).toEqual({ type: 'reset', stream: 2_002, code: 'refused' })
    const resets = peer.streamFrames.filter(({ flags }) => flags === Flag.rst)
    expect(resets.map(({ id }) => id)).toEqual([2_002])
    expect(session.closed).toBe(false)
  })

  test('M5 at most 256 of our streams are unacknowledged', () => {
    const { session } = sessionWithRawPeer({ role: 'server' })
    for (let i = 0; i < 256; i++) session.open().write(Buffer.from('x'))
    expect(() => session.open()).toThrow(expect.objectContaining({ reason: 'overloaded' }))
  })

  test('M5 rapid resets are counted, and each stream hears of its own', async () => {
    const recorders: StreamRecorder[] = []
    const { session, peer, closings } = sessionWithRawPeer({
      role: 'client',
      clock: new FakeClock(),
      onStream: stream => recorders.push(new StreamRecorder(stream)),
      resetBurst: 100,
    })
    for (let i = 1; i <= 150; i++) {
      peer.send(open(2 * i, Buffer.from('x')), frame(FrameType.windowUpdate, Flag.rst, 2 * i, 0))
    }
    await until(() => session.closed)
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/opened and reset/) }])
    expect(recorders).toHaveLength(101)
    expect(recorders.every(({ resetWith }) => resetWith === 'cancelled')).toBe(true)
  })

  test.each([
    ['by the session', undefined],
    ['by its owner', (stream: Stream) => stream.reset('refused')],
  ])('M5 opens that are refused %s count, too', async (_, onStream) => {
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server', clock, onStream, resetBurst: 50 })
    for (let i = 0; i < 60; i++) peer.send(open(2 * i + 1))
    await until(() => session.closed)
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/opened and reset/) }])
  })

  test('M5 `reset` messages count, except the first for an open stream', async () => {
    const onStream = (stream: Stream) => new StreamRecorder(stream)
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'client', clock, onStream, resetBurst: 50 })
    const reset = (stream: number) => peer.transport.control(JSON.stringify({ type: 'reset', stream, code: 'limit' }))
    for (let i = 1; i <= 100; i++) peer.send(open(2 * i))
    await until(() => session.streams === 100)
    for (let i = 1; i <= 100; i++) reset(2 * i)
    for (let i = 1; i <= 25; i++) reset(2 * i)
    for (let i = 1; i <= 25; i++) reset(1000)
    await turns()
    expect(session.closed).toBe(false)
    reset(2)
    await until(() => session.closed)
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/opened and reset/) }])
  })

  test('M5 resets at a rate that callers can cause do no harm', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'client', onStream: () => {}, clock, resetBurst: 20 })
    for (let i = 1; i <= 200; i++) {
      peer.send(open(2 * i), frame(FrameType.windowUpdate, Flag.rst, 2 * i, 0))
      await clock.advance(5)
    }
    expect([session.closed, session.streams]).toEqual([false, 0])
  })
})

describe('M6 wrong parity, reused or falling ids: refused', () => {
  test('M6 wrong parity', () => expectProtocolError([open(3)], /parity/))
  test('M6 an id in use', () => expectProtocolError([open(2), open(2)], /used before/))
  test('M6 a falling id', () => expectProtocolError([open(6), open(4)], /used before/))
  test('M6 the id of a finished stream', () =>
    expectProtocolError([open(2), frame(FrameType.windowUpdate, Flag.rst, 2, 0), open(2)], /used before/))
})

describe('M7 a byte over the window: error, never buffered', () => {
  test('M7 in later frames', async () => {
    const seen: number[] = []
    const onStream: SessionOptions['onStream'] = stream => {
      const recorder = new StreamRecorder(stream, false)
      recorder.data = chunk => seen.push(chunk.length)
    }
    await expectProtocolError(
      [open(2, pattern(256 * KIB)), frame(FrameType.data, 0, 2, Buffer.from('x'))],
      /window exceeded/,
      { onStream },
    )
    expect(seen.reduce((sum, bytes) => sum + bytes, 0)).toBe(256 * KIB)
  })

  test('M7 a frame that announces more than is left of the window', () =>
    expectProtocolError([open(2, pattern(200 * KIB)), frame(FrameType.data, 0, 2, pattern(100 * KIB))], /exceeded/, {
      onStream: stream => new StreamRecorder(stream, false),
    }))

  test('M7 on a finished stream, any length within a window is dropped, a longer one is an error', () =>
    expectProtocolError(
      [
        open(2),
        frame(FrameType.windowUpdate, Flag.rst, 2, 0),
        frame(FrameType.data, 0, 2, pattern(100 * KIB)),
        frame(FrameType.data, 0, 2, 0x0200_0000),
      ],
      /window exceeded/,
    ))

  test('M7 data after FIN', () =>
    expectProtocolError(
      [open(2), frame(FrameType.windowUpdate, Flag.fin, 2, 0), frame(FrameType.data, 0, 2, Buffer.from('x'))],
      /after FIN/,
      { onStream: stream => new StreamRecorder(stream) },
    ))
})

describe('M8 stray ACK, RST, FIN', () => {
  test.each([
    ['ACK', Flag.ack],
    ['FIN', Flag.fin],
    ['RST', Flag.rst],
    ['ACK and FIN', Flag.ack | Flag.fin],
  ])('M8 a stray %s is ignored, on data and window frames, for used and unused ids', async (_, flags) => {
    const { session, peer } = sessionWithRawPeer({ role: 'client', onStream: echo })
    peer.send(open(2), frame(FrameType.windowUpdate, Flag.rst, 2, 0))
    for (const id of [1, 2, 40, 41]) {
      peer.send(frame(FrameType.windowUpdate, flags, id, 0), frame(FrameType.data, flags, id, 0))
    }
    peer.send(open(42, Buffer.from('alive')))
    await until(() => peer.streamFrames.some(({ payload }) => payload.toString() === 'alive'))
    expect(session.closed).toBe(false)
  })

  test('M8 a half-close keeps the other direction open; FIN with data delivers the data', async () => {
    const recorders: StreamRecorder[] = []
    const { session, peer } = sessionWithRawPeer({
      role: 'client',
      onStream: s => recorders.push(new StreamRecorder(s)),
    })
    peer.send(open(2, Buffer.from('a')), frame(FrameType.data, Flag.fin, 2, Buffer.from('b')))
    peer.send(frame(FrameType.windowUpdate, Flag.fin, 2, 0))
    await until(() => recorders[0]?.ended === true)
    expect(recorders[0]!.text).toBe('ab')
    recorders[0]!.stream.write(Buffer.from('still here'))
    await until(() => peer.streamFrames.some(({ payload }) => payload.toString() === 'still here'))
    recorders[0]!.stream.end()
    await until(() => session.streams === 0)
  })
})

test('M9 frames split at every byte, or many in one message: same result', async () => {
  const bytes = Buffer.concat([
    open(2, Buffer.from('first')),
    frame(FrameType.ping, Flag.syn, 0, 99),
    open(4),
    frame(FrameType.data, 0, 4, Buffer.from('second')),
    frame(FrameType.windowUpdate, Flag.fin, 2, 0),
    frame(FrameType.windowUpdate, Flag.fin, 4, 0),
  ])
  const run = async (cutBytes: number): Promise<object> => {
    const { session, peer, transport } = sessionWithRawPeer({ role: 'client', onStream: echo })
    cutArrivals(transport, () => cutBytes)
    peer.send(bytes)
    await until(() => peer.frames.filter(({ flags }) => flags & Flag.fin).length === 2)
    expect(session.streams).toBe(0)
    const echoed = new Map<number, string>()
    for (const { id, payload } of peer.streamFrames) echoed.set(id, (echoed.get(id) ?? '') + payload.toString())
    return Object.fromEntries(echoed)
  }
  const whole = await run(bytes.length)
  expect(whole).toEqual({ 2: 'first', 4: 'second' })
  for (let cutBytes = 1; cutBytes < 30; cutBytes++) expect(await run(cutBytes)).toEqual(whole)
})

test('M10 one stalled stream never blocks the rest', async () => {
  const { server } = sessionPair(
    {},
    { onStream: stream => (stream.id === 2 ? new StreamRecorder(stream, false) : echo(stream)) },
  )
  const stalled = new StreamRecorder(server.open())
  stalled.stream.write(pattern(5_000 * KIB))
  await until(() => stalled.sentBytes === 256 * KIB)
  const others = Array.from({ length: 50 }, () => {
    const recorder = new StreamRecorder(server.open())
    recorder.stream.write(pattern(300 * KIB))
    recorder.stream.end()
    return recorder
  })
  await until(() => others.every(({ ended }) => ended))
  expect(others.every(({ receivedBytes }) => receivedBytes === 300 * KIB)).toBe(true)
  expect(stalled.sentBytes).toBe(256 * KIB)
})
