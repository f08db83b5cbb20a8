import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { Flag, FrameType, GoAwayCode, HEADER_BYTES } from '../../../../protocol/wire/yamux/frame.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { until } from '../../../support/until.ts'
import { FakeClock, frame, pattern, StreamRecorder, sessionPair, sessionWithRawPeer, turns } from './support.ts'

const KIB = 1024

describe('session', () => {
  test('carries bytes in both directions and ends', async () => {
    const { server, client } = sessionPair()
    const body = pattern(3_000_000)
    const recorder = new StreamRecorder(server.open())
    recorder.stream.write(body)
    recorder.stream.end()
    await until(() => recorder.ended)
    expect(Buffer.concat(recorder.chunks).equals(body)).toBe(true)
    expect(recorder.sentBytes).toBe(body.length)
    expect([server.streams, client.streams, server.bufferedBytes, client.bufferedBytes]).toEqual([0, 0, 0, 0])
  })

  test('ids are even at the server, odd at the client, and rise', () => {
    const { server, client } = sessionPair()
    expect([server.open().id, server.open().id]).toEqual([2, 4])
    expect([client.open().id, client.open().id]).toEqual([1, 3])
  })

  test('a stream is unsent until its first bytes have left, even if its SYN has', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const [silent, speaking] = [session.open(), session.open()]
    speaking.write('head')
    expect(speaking.unsent).toBe(true)
    await until(() => peer.frames.length === 2)
    expect(peer.frames.map(({ id, flags }) => ({ id, flags }))).toEqual([
      { id: silent.id, flags: Flag.syn },
      { id: speaking.id, flags: Flag.syn },
    ])
    expect([silent.unsent, speaking.unsent]).toEqual([true, false])
  })

  test('head, small body and FIN leave in one transport write; SYN rides on data, FIN alone', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const stream = session.open()
    stream.write(Buffer.from('head '))
    stream.write(Buffer.from('body'))
    stream.end()
    await until(() => peer.frames.length > 0)
    expect(peer.writes).toEqual([2 * HEADER_BYTES + 9])
    expect(peer.frames).toEqual([
      { type: FrameType.data, flags: Flag.syn, id: 2, length: 9, payload: Buffer.from('head body') },
      { type: FrameType.windowUpdate, flags: Flag.fin, id: 2, length: 0, payload: Buffer.alloc(0) },
    ])
  })

  test('an end without data sends SYN and FIN separately', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    session.open().end()
    await until(() => peer.frames.length > 0)
    expect(peer.frames.map(({ type, flags }) => [type, flags])).toEqual([
      [FrameType.windowUpdate, Flag.syn],
      [FrameType.windowUpdate, Flag.fin],
    ])
  })

  test('ids rise on the wire even if a later stream speaks first', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const [first, dropped, last] = [session.open(), session.open(), session.open()]
    dropped.reset('cancelled')
    last.write(Buffer.from('c'))
    await turns()
    first.write(Buffer.from('a'))
    await until(() => peer.frames.length === 3)
    expect(peer.frames.map(({ type, flags, id, length }) => [type, flags, id, length])).toEqual([
      [FrameType.windowUpdate, Flag.syn, 2, 0],
      [FrameType.data, Flag.syn, 6, 1],
      [FrameType.data, 0, 2, 1],
    ])
  })

  test('many streams of one turn leave in one transport write', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    for (let i = 0; i < 40; i++) session.open().write(pattern(1 * KIB))
    await until(() => peer.frames.length >= 40)
    expect(peer.writes).toHaveLength(1)
  })

  test('ACK rides on the first frame of an answer', async () => {
    const { session, peer } = sessionWithRawPeer({
      role: 'client',
      onStream: stream => stream.write(Buffer.from('ok')),
    })
    peer.send(frame(FrameType.data, Flag.syn, 2, Buffer.from('hello')))
    await until(() => peer.frames.length > 0)
    expect(peer.frames).toEqual([
      { type: FrameType.data, flags: Flag.ack, id: 2, length: 2, payload: Buffer.from('ok') },
    ])
    expect(session.streams).toBe(1)
  })

  test('ACK leaves alone after a moment if there is no answer yet', async () => {
    const clock = new FakeClock()
    const { peer } = sessionWithRawPeer({ role: 'client', onStream: () => {}, clock })
    peer.send(frame(FrameType.data, Flag.syn, 2, Buffer.from('hello')))
    await turns()
    expect(peer.frames).toHaveLength(0)
    await clock.advance(50)
    expect(peer.frames).toEqual([
      { type: FrameType.windowUpdate, flags: Flag.ack, id: 2, length: 0, payload: Buffer.alloc(0) },
    ])
  })

  test('ACKs that wait repeatedly share one timer', async () => {
    const clock = new FakeClock()
    const { peer } = sessionWithRawPeer({ role: 'client', onStream: () => {}, clock })
    const made = clock.made
    for (let id = 2; id <= 100; id += 2) {
      peer.send(frame(FrameType.data, Flag.syn, id, Buffer.from('hello')))
      await clock.advance(25)
      expect(peer.frames).toHaveLength(id / 2)
    }
    expect(clock.made - made).toBe(1)
  })

  test('half-close: the other direction goes on', async () => {
    const { server, client } = sessionPair(
      {},
      {
        onStream: stream => {
          const recorder = new StreamRecorder(stream)
          recorder.end = () => {
            stream.write(Buffer.from('all after your end'))
            stream.end()
          }
        },
      },
    )
    const recorder = new StreamRecorder(server.open())
    recorder.stream.write(Buffer.from('request'))
    recorder.stream.end()
    await until(() => recorder.ended)
    expect(recorder.text).toBe('all after your end')
    expect(client.streams).toBe(0)
  })

  test('reset sends its code ahead, drops what is queued and overtakes bodies', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const other = session.open()
    other.write(pattern(600 * KIB))
    const stream = session.open()
    stream.write(Buffer.from('first'))
    await turns()
    stream.write(pattern(100 * KIB))
    stream.reset('upstream-broken')
    await turns()
    expect(stream.queuedBytes).toBe(0)
    expect(peer.controls.map(text => JSON.parse(text))).toEqual([
      { type: 'reset', stream: stream.id, code: 'upstream-broken' },
    ])
    const ofStream = peer.streamFrames.filter(({ id }) => id === stream.id)
    expect(ofStream.map(({ type, flags, length }) => [type, flags, length])).toEqual([
      [FrameType.data, Flag.syn, 5],
      [FrameType.windowUpdate, Flag.rst, 0],
    ])
    expect(other.queuedBytes).toBeGreaterThan(0)
  })

  test.each([
    '{"type":"reset","stream":2,"code":"timeout"}',
    '{ "ty\\u0070e": "re\\u0073et", "stream": 2, "code": "time\\u006fut" }',
  ])('takes the code of a reset, however its JSON is written: %s', async text => {
    const controls: string[] = []
    const { session, peer } = sessionWithRawPeer({ role: 'server', onControl: message => void controls.push(message) })
    const recorder = new StreamRecorder(session.open())
    peer.transport.control(text)
    peer.send(frame(FrameType.windowUpdate, Flag.rst, 2, 0))
    await until(() => recorder.resetWith !== undefined)
    expect([recorder.resetWith, controls]).toEqual(['timeout', []])
  })

  test('a stream reset before its first frame leaves no trace on the wire', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const stream = session.open()
    stream.write(Buffer.from('never'))
    stream.reset('timeout')
    await turns()
    expect([peer.frames, peer.controls, session.streams]).toEqual([[], [], 0])
  })

  test.each(['cancelled', 'refused', 'upstream-broken', 'timeout', 'limit'] as const)(
    'the peer learns the reset code %s',
    async code => {
      const accepted: StreamRecorder[] = []
      const { server } = sessionPair({}, { onStream: stream => accepted.push(new StreamRecorder(stream)) })
      const stream = server.open()
      stream.write(Buffer.from('x'))
      await until(() => accepted.length === 1)
      stream.reset(code)
      await until(() => accepted[0]!.resetWith !== undefined)
      expect(accepted[0]!.resetWith).toBe(code)
    },
  )

  test('a bare RST, or one with an unknown code, means cancelled', async () => {
    const recorders: StreamRecorder[] = []
    const { peer } = sessionWithRawPeer({
      role: 'client',
      onStream: stream => recorders.push(new StreamRecorder(stream)),
    })
    peer.send(
      frame(FrameType.data, Flag.syn, 2, Buffer.from('a')),
      frame(FrameType.data, Flag.syn, 4, Buffer.from('b')),
    )
    peer.send(frame(FrameType.windowUpdate, Flag.rst, 2, 0))
    peer.transport.control('{"type":"reset","stream":4,"code":"of tomorrow"}')
    peer.send(frame(FrameType.windowUpdate, Flag.rst, 4, 0))
    await until(() => recorders.length === 2 && recorders.every(({ resetWith }) => resetWith !== undefined))
    expect(recorders.map(({ resetWith }) => resetWith)).toEqual(['cancelled', 'cancelled'])
  })

  test('calls after the end or a reset are ignored', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'server' })
    const stream = session.open()
    stream.write(Buffer.from('a'))
    stream.end()
    stream.write(Buffer.from('late'))
    stream.end()
    const gone = session.open()
    gone.reset('cancelled')
    gone.write(Buffer.from('late'))
    gone.end()
    gone.reset('limit')
    gone.consumed(5)
    await turns()
    expect(peer.frames.map(({ id, length }) => [id, length])).toEqual([
      [2, 1],
      [2, 0],
    ])
  })

  test('control messages keep their place behind frames that may go out, and reach the owner', async () => {
    const texts: string[] = []
    const { session, peer } = sessionWithRawPeer({ role: 'server', onControl: text => texts.push(text) })
    session.open().write(Buffer.from('before'))
    session.control({ type: 'drain' })
    await turns()
    expect(peer.order).toEqual(['bytes', '{"type":"drain"}'])
    peer.transport.control('{"type":"hello"}')
    peer.transport.control('no json "reset"')
    peer.transport.control('{"type":"other","of":"reset"}')
    await turns()
    expect(texts).toEqual(['{"type":"hello"}', 'no json "reset"', '{"type":"other","of":"reset"}'])
  })

  test('ping measures a round trip', async () => {
    const { server } = sessionPair()
    const rttMs = await new Promise<number>(resolve => server.ping(resolve))
    expect(rttMs).toBeGreaterThan(0)
    expect(server.rttMs).toBeCloseTo(rttMs, 5)
  })

  test('open throws overloaded at maxStreams, at the backlog, after go-away and when closed', async () => {
    const overloaded = expect.objectContaining({ reason: 'overloaded' })
    const { server } = sessionPair({ maxStreams: 2 })
    const first = server.open()
    server.open()
    expect(() => server.open()).toThrow(overloaded)
    first.reset('cancelled')
    expect(server.open().id).toBe(6)

    const { session, peer } = sessionWithRawPeer({ role: 'server', backlog: 2 })
    session.open().write(Buffer.from('a'))
    session.open().write(Buffer.from('b'))
    expect(() => session.open()).toThrow(overloaded)
    await until(() => peer.frames.length === 2)
    peer.send(frame(FrameType.windowUpdate, Flag.ack, 2, 0))
    await until(() => session.canOpen)
    session.open()
    peer.send(frame(FrameType.windowUpdate, Flag.ack, 4, 0), frame(FrameType.goAway, 0, 0, GoAwayCode.normal))
    await until(() => !session.canOpen)
    expect(() => session.open()).toThrow(overloaded)
    session.close('done')
    expect(() => session.open()).toThrow(SallyportError)
  })

  test('a full session says when there is room', async () => {
    let told = 0
    const onRoom = () => told++
    const { session, peer } = sessionWithRawPeer({ role: 'server', backlog: 2, maxStreams: 3, onRoom })
    for (const text of ['a', 'b']) session.open().write(Buffer.from(text))
    await until(() => peer.frames.length === 2)
    peer.send(frame(FrameType.windowUpdate, Flag.ack, 2, 0), frame(FrameType.windowUpdate, Flag.ack, 4, 0))
    await until(() => told === 1)
    const third = session.open()
    expect(session.canOpen).toBe(false)
    third.reset('cancelled')
    await until(() => told === 2)
    expect(session.canOpen).toBe(true)
  })

  test('a peer that says how many streams it accepts, accepts them before it acknowledges any', () => {
    const { session } = sessionWithRawPeer({ role: 'server', backlog: 2, maxStreams: 5 })
    session.setPeerLimits({ streams: 4 })
    for (let i = 0; i < 4; i++) session.open()
    expect(session.canOpen).toBe(false)
  })

  test('a received go-away tells the owner once and leaves open streams alone', async () => {
    let told = 0
    const { session, peer } = sessionWithRawPeer({ role: 'server', onGoAway: () => told++ })
    const recorder = new StreamRecorder(session.open())
    recorder.stream.write(Buffer.from('a'))
    peer.send(frame(FrameType.goAway, 0, 0, 0), frame(FrameType.goAway, 0, 0, 1))
    peer.send(frame(FrameType.data, Flag.ack, 2, Buffer.from('still served')))
    await until(() => recorder.receivedBytes > 0)
    expect(told).toBe(1)
    expect(recorder.resetWith).toBeUndefined()
  })

  test('after our go-away streams of the peer are refused', async () => {
    const { session, peer } = sessionWithRawPeer({ role: 'client', onStream: () => {} })
    session.goAway()
    session.goAway()
    peer.send(frame(FrameType.data, Flag.syn, 2, Buffer.from('a')))
    await until(() => peer.frames.length >= 2)
    expect(peer.frames.map(({ type, flags, id }) => [type, flags, id])).toEqual([
      [FrameType.goAway, 0, 0],
      [FrameType.windowUpdate, Flag.rst, 2],
    ])
    expect(JSON.parse(peer.controls[0]!)).toEqual({ type: 'reset', stream: 2, code: 'refused' })
  })

  test('close sends what is queued, then closes; open streams are lost', async () => {
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server' })
    const recorder = new StreamRecorder(session.open())
    recorder.stream.write(pattern(200 * KIB))
    session.close('bye', 1001)
    expect(recorder.resetWith).toBe('session-lost')
    expect(closings).toEqual([{ error: undefined, reason: 'bye' }])
    await until(() => peer.closedWith !== undefined)
    expect(peer.closedWith).toEqual({ code: 1001, reason: 'bye' })
    expect(peer.frames.reduce((sum, { payload }) => sum + payload.length, 0)).toBe(200 * KIB)
    expect(session.closed).toBe(true)
    expect(closings).toHaveLength(1)
  })

  test('close ends by force when the peer does not answer', async () => {
    const clock = new FakeClock()
    const { session, peer, transport } = sessionWithRawPeer({ role: 'server', clock })
    peer.transport.pause()
    let terminated = 0
    transport.terminate = () => terminated++
    session.close('bye')
    await clock.advance(9_000)
    expect(terminated).toBe(0)
    await clock.advance(2_000)
    expect(terminated).toBe(1)
    expect(clock.timers).toBe(0)
  })

  test('destroy ends each stream at once', async () => {
    const { server, client } = sessionPair()
    const recorder = new StreamRecorder(server.open())
    recorder.stream.write(Buffer.from('x'))
    await turns()
    server.destroy(new SallyportError('session-lost', 'test'))
    expect(recorder.resetWith).toBe('session-lost')
    await until(() => client.closed && client.streams === 0)
  })

  test('the loss of the transport is reported with its cause', async () => {
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server' })
    const recorder = new StreamRecorder(session.open())
    peer.transport.terminate()
    await until(() => closings.length === 1)
    expect(closings[0]!.error).toMatchObject({ reason: 'session-lost', cause: expect.any(Error) })
    expect(recorder.resetWith).toBe('session-lost')
  })

  test('a handler that throws ends the session, not the process', async () => {
    const { session, peer, closings } = sessionWithRawPeer({
      role: 'client',
      onStream: stream => {
        const recorder = new StreamRecorder(stream)
        recorder.data = () => {
          throw new Error('a defect')
        }
      },
    })
    peer.send(frame(FrameType.data, Flag.syn, 2, Buffer.from('x')))
    await until(() => session.closed)
    expect(closings[0]!.error).toMatchObject({ reason: 'internal' })
  })

  test('an agreed window applies to new streams in both directions', async () => {
    const accepted: Stream[] = []
    const { server, client } = sessionPair({}, { onStream: stream => accepted.push(stream) })
    server.setPeerLimits({ windowBytes: 64 * KIB })
    client.setPeerLimits({ windowBytes: 64 * KIB })
    const stream = server.open()
    stream.write(pattern(100 * KIB))
    await turns()
    expect(accepted[0]!.unreadBytes).toBe(64 * KIB)
    expect(stream.queuedBytes).toBe(36 * KIB)
  })

  test('opens no more streams at a time than the peer accepts', () => {
    const { server } = sessionPair()
    server.setPeerLimits({ streams: 2 })
    const first = server.open()
    server.open()
    expect(() => server.open()).toThrow(expect.objectContaining({ reason: 'overloaded' }))
    first.reset('cancelled')
    server.open()
  })

  test('asks for its replacement when ids run low, and ends with the last id', () => {
    let low = 0
    const { session } = sessionWithRawPeer({ role: 'server', firstId: 0x7ff0_0000 - 4, onIdsLow: () => low++ })
    session.open()
    expect(low).toBe(0)
    session.open()
    session.open()
    session.open()
    expect(low).toBe(1)
    const last = sessionWithRawPeer({ role: 'server', firstId: 0x7fff_fffe }).session
    expect(last.open().id).toBe(0x7fff_fffe)
    expect(() => last.open()).toThrow(/no stream ids left/)
  })

  test('misuse is a TypeError', () => {
    expect(() => sessionWithRawPeer({ role: 'server', maxStreams: 0 })).toThrow(TypeError)
    expect(() => sessionWithRawPeer({ role: 'server', maxWindowBytes: 17 * KIB * KIB })).toThrow(TypeError)
    const { session } = sessionWithRawPeer({ role: 'server' })
    expect(() => session.control({ type: 'x'.repeat(17 * KIB) })).toThrow(TypeError)
  })
})
