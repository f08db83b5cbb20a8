import { describe, expect, test } from 'vitest'
import { Flag, FrameType } from '../../../../protocol/wire/yamux/frame.ts'
import { FakeClock, frame, pattern, StreamRecorder, sessionWithRawPeer, turns } from './support.ts'

const SECOND = 1_000

describe('deadlines', () => {
  test('a ping goes out every 10 s', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    await clock.advance(9 * SECOND)
    expect(peer.frames).toHaveLength(0)
    await clock.advance(32 * SECOND)
    expect(peer.frames.filter(({ type, flags }) => type === FrameType.ping && flags === Flag.syn)).toHaveLength(4)
    expect(session.closed).toBe(false)
  })

  test('a peer that answers no ping is dead after 15 s', async () => {
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server', clock })
    peer.answersPings = false
    await clock.advance(14 * SECOND)
    expect(session.closed).toBe(false)
    await clock.advance(1 * SECOND)
    expect(closings).toMatchObject([{ error: { reason: 'session-lost' }, reason: expect.stringMatching(/pings/) }])
    expect(clock.timers).toBe(0)
  })

  test('the silence counts from the last byte, not from the ping', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock, pingIntervalMs: 1000, pingTimeoutMs: 1500 })
    await clock.advance(1900)
    peer.answersPings = false
    await clock.advance(550)
    expect(session.closed).toBe(false)
    await clock.advance(100)
    expect(session.closed).toBe(true)
  })

  test('a client that is pinged sends no ping; it sends one that is overdue itself', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'client', clock, awaitsPings: true })
    const sent = () => peer.frames.filter(({ type, flags }) => type === FrameType.ping && flags === Flag.syn).length
    for (let i = 0; i < 5; i++) {
      await clock.advance(9900)
      peer.send(frame(FrameType.ping, Flag.syn, 0, i))
      await clock.advance(100)
    }
    expect(sent()).toBe(0)
    peer.answersPings = false
    await clock.advance(10.6 * SECOND)
    expect(sent()).toBe(1)
    await clock.advance(4 * SECOND)
    expect(session.closed).toBe(false)
    await clock.advance(1 * SECOND)
    expect(session.closed).toBe(true)
  })

  test.each([
    ['credit alone', 0, 'session-lost'],
    ['credit with ACK', Flag.ack, undefined],
  ])('a stream that receives %s within 10 s', async (_, flags, resetWith) => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    const recorder = new StreamRecorder(session.open())
    recorder.stream.write('request')
    await turns()
    peer.send(frame(FrameType.windowUpdate, flags, recorder.stream.id, 1000))
    await clock.advance(11 * SECOND)
    expect([recorder.resetWith, session.closed]).toEqual([resetWith, false])
  })

  test('a peer that is heard stays connected without an answer, but not forever', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    peer.answersPings = false
    for (let i = 0; i < 13; i++) {
      peer.send(frame(FrameType.ping, Flag.syn, 0, i))
      await clock.advance(5 * SECOND)
    }
    expect(session.closed).toBe(false)
    for (let i = 0; i < 3; i++) {
      peer.send(frame(FrameType.ping, Flag.syn, 0, i))
      await clock.advance(5 * SECOND)
    }
    expect(session.closed).toBe(true)
  })

  test('a process that was frozen hears its peer before it judges it', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    peer.answersPings = false
    await clock.advance(11 * SECOND)
    clock.jump(60 * SECOND)
    const ping = peer.frames.at(-1)!
    peer.send(frame(FrameType.ping, Flag.ack, 0, ping.length))
    await clock.advance(0)
    peer.answersPings = true
    await clock.advance(5 * SECOND)
    expect(session.closed).toBe(false)
  })

  test('a stream that the peer does not acknowledge is reset after 10 s', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    const ignored = new StreamRecorder(session.open())
    const taken = new StreamRecorder(session.open())
    ignored.stream.write(Buffer.from('a'))
    taken.stream.write(Buffer.from('b'))
    await turns()
    peer.send(frame(FrameType.windowUpdate, Flag.ack, taken.stream.id, 0))
    await clock.advance(9_900)
    expect(ignored.resetWith).toBeUndefined()
    await clock.advance(200)
    expect([ignored.resetWith, taken.resetWith]).toEqual(['session-lost', undefined])
    expect(peer.frames.some(({ flags, id }) => flags === Flag.rst && id === ignored.stream.id)).toBe(true)
    expect(session.streams).toBe(1)
  })

  test.each([
    ['the acknowledgement', Flag.ack, undefined],
    ['nothing', undefined, 'session-lost'],
  ])(
    'on a path that takes 12 s, a stream is not reset before the peer has answered; with it comes %s',
    async (_, flags, resetWith) => {
      const clock = new FakeClock()
      const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
      peer.answersPings = false
      const recorder = new StreamRecorder(session.open())
      recorder.stream.write('request')
      for (let second = 0; second < 12; second++) {
        peer.send(frame(FrameType.ping, Flag.syn, 0, second))
        await clock.advance(SECOND)
      }
      expect(recorder.resetWith).toBeUndefined()
      const asked = peer.frames.find(({ type, flags }) => type === FrameType.ping && flags === Flag.syn)!
      if (flags !== undefined) peer.send(frame(FrameType.windowUpdate, flags, recorder.stream.id, 0))
      peer.send(frame(FrameType.ping, Flag.ack, 0, asked.length))
      await clock.advance(SECOND)
      expect([recorder.resetWith, session.closed]).toEqual([resetWith, false])
    },
  )

  test('what is late is overdue, and an unacknowledged stream is asked about with a ping at once', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    peer.answersPings = false
    const pings = () => peer.frames.filter(({ type, flags }) => type === FrameType.ping && flags === Flag.syn).length
    const one = new StreamRecorder(session.open())
    one.stream.write(Buffer.from('a'))
    await clock.advance(240)
    expect([session.overdue, pings()]).toEqual([false, 0])
    await clock.advance(20)
    expect([session.overdue, pings()]).toEqual([true, 1])
    peer.send(frame(FrameType.windowUpdate, Flag.ack, one.stream.id, 0))
    await clock.advance(0)
    // The stream is accepted, but the ping waits by now.
    await clock.advance(260)
    expect([session.overdue, pings()]).toEqual([true, 1])
    const { length } = peer.frames.find(({ type }) => type === FrameType.ping)!
    peer.send(frame(FrameType.ping, Flag.ack, 0, length))
    await clock.advance(0)
    expect(session.overdue).toBe(false)
  })

  test('M4 a peer that stops reading: the session ends at the write deadline', async () => {
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server', clock })
    await clock.advance(3 * SECOND)
    peer.transport.pause()
    session.open().write(pattern(1000))
    await clock.advance(9_900)
    expect(closings).toHaveLength(0)
    await clock.advance(200)
    expect(closings).toMatchObject([
      { error: { reason: 'session-lost' }, reason: expect.stringMatching(/stopped reading/) },
    ])
  })

  test('a peer that pauses for less goes on', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    for (let i = 0; i < 5; i++) {
      peer.transport.pause()
      const stream = session.open()
      stream.write(pattern(1000))
      await clock.advance(8 * SECOND)
      peer.transport.resume()
      await turns()
      peer.send(frame(FrameType.windowUpdate, Flag.ack, stream.id, 0))
      await clock.advance(1 * SECOND)
    }
    expect(session.closed).toBe(false)
  })

  test('an ended session leaves no timer', async () => {
    const clock = new FakeClock()
    const { session, peer } = sessionWithRawPeer({ role: 'server', clock })
    session.open().write(Buffer.from('a'))
    await turns()
    peer.transport.close(1000, 'done')
    await turns()
    expect(session.closed).toBe(true)
    expect(clock.timers).toBe(0)
  })
})
