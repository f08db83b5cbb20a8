import { describe, expect, test, vi } from 'vitest'
import { createBufferBudget } from '../../../../protocol/base/budget.ts'
import { FrameType } from '../../../../protocol/wire/yamux/frame.ts'
import { RuntimeCeilings } from '../../../../protocol/wire/yamux/runtime-ceilings.ts'
import type { SessionOptions } from '../../../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { until } from '../../../support/until.ts'
import { FakeClock, frame, pattern, StreamRecorder, sessionPair, sessionWithRawPeer, turns } from './support.ts'

const KIB = 1024

/** Sends `sizes[i]` bytes, each on its own stream, to a receiver that consumes nothing. No round trip is long. */
async function fill(sizes: number[], options: Partial<SessionOptions>) {
  const accepted = new Map<number, StreamRecorder>()
  const clock = new FakeClock()
  const { server, client } = sessionPair(
    { clock },
    { ...options, clock, onStream: (stream: Stream) => accepted.set(stream.id, new StreamRecorder(stream, false)) },
  )
  const senders = sizes.map(size => {
    const sender = new StreamRecorder(server.open())
    sender.stream.write(pattern(size))
    return sender
  })
  await until(() => senders.every(({ stream, resetWith }) => stream.queuedBytes === 0 || resetWith !== undefined))
  await turns()
  return { senders, accepted, server, client }
}

describe('ceilings', () => {
  test("at a session's ceiling its greediest stream is reset, and the others are served", async () => {
    const sizes = [50, 100, 200, 60, 40].map(kib => kib * KIB)
    const { senders, accepted, client } = await fill(sizes, { sessionBufferBytes: 400 * KIB })
    expect(senders.map(({ resetWith }) => resetWith)).toEqual([undefined, undefined, 'limit', undefined, undefined])
    expect(accepted.get(senders[2]!.stream.id)!.resetWith).toBe('limit')
    expect(client.bufferedBytes).toBe(250 * KIB)
    expect(client.closed).toBe(false)
    for (const [i, { stream }] of senders.entries()) {
      if (i === 2) continue
      const taker = accepted.get(stream.id)!
      expect(taker.receivedBytes).toBe(sizes[i])
      taker.stream.consumed(taker.receivedBytes)
    }
    expect(client.bufferedBytes).toBe(0)
  })

  test("at a process's ceiling the greediest stream of the greediest session is reset", async () => {
    const processBudget = createBufferBudget(300 * KIB)
    const small = await fill([60 * KIB, 50 * KIB], { processBudget })
    const large = await fill([30 * KIB, 200 * KIB, 20 * KIB], { processBudget })
    expect(small.senders.map(({ resetWith }) => resetWith)).toEqual([undefined, undefined])
    expect(large.senders.map(({ resetWith }) => resetWith)).toEqual([undefined, 'limit', undefined])
    expect(processBudget.usedBytes).toBe(160 * KIB)
    small.client.close('done')
    large.client.close('done')
    expect(processBudget.usedBytes).toBe(0)
  })

  test('bytes of an ended stream leave the budget when they are consumed, even after the end of the session', async () => {
    const processBudget = createBufferBudget()
    const accepted: StreamRecorder[] = []
    const { peer, session } = sessionWithRawPeer({
      role: 'client',
      processBudget,
      onStream: stream => {
        accepted.push(new StreamRecorder(stream, false))
        stream.end()
      },
    })
    for (const id of [2, 4])
      peer.send(frame(FrameType.data, 1, id, pattern(1000)), frame(FrameType.windowUpdate, 4, id, 0))
    await until(() => accepted.length === 2 && session.streams === 0)
    expect(processBudget.usedBytes).toBe(2000)
    accepted[0]!.stream.consumed(1000)
    expect(processBudget.usedBytes).toBe(1000)
    session.close('done')
    expect(processBudget.usedBytes).toBe(1000)
    accepted[1]!.stream.consumed(400)
    accepted[1]!.stream.discard()
    expect(processBudget.usedBytes).toBe(0)
  })

  test('above 75 % a stalled stream gets no credit, and one that is read does', async () => {
    const sizes = [100, 60, 64, 100, 100, 100].map(kib => kib * KIB)
    const { senders, accepted, client } = await fill(sizes, {
      sessionBufferBytes: 560 * KIB,
      initialWindowBytes: 128 * KIB,
    })
    expect(senders.every(({ resetWith }) => resetWith === undefined)).toBe(true)
    const [stalled, , read] = [...accepted.values()].map(({ stream }) => stream)
    const before = [stalled!.receive.openBytes, read!.receive.openBytes]
    stalled!.consumed(34 * KIB)
    read!.consumed(64 * KIB)
    await turns()
    expect(client.bufferedBytes).toBe(426 * KIB)
    expect(stalled!.receive.openBytes).toBe(before[0])
    expect(read!.receive.openBytes).toBe(before[1]! + 64 * KIB)
    // Once most of it is read, it is no longer stalled.
    stalled!.consumed(66 * KIB)
    await turns()
    expect(stalled!.receive.openBytes).toBe(before[0]! + 100 * KIB)
  })

  describe('of a runtime, in sessions that it shares with others', () => {
    /** Three such sessions. Each stream belongs to a runtime, which is known when its first bytes have arrived. */
    const start = (limitBytes: number, processBudget = createBufferBudget()) => {
      const runtimeCeilings = new RuntimeCeilings(limitBytes)
      const clock = new FakeClock()
      const links = [0, 1, 2].map(() => {
        const accepted: StreamRecorder[] = []
        const onStream = (stream: Stream) => {
          const recorder = new StreamRecorder(stream, false)
          accepted.push(recorder)
          const { data } = recorder
          recorder.data = chunk => {
            stream.paidBy(String.fromCharCode(chunk[0]!), '')
            recorder.data = data
            recorder.data(chunk)
          }
        }
        return { ...sessionPair({ clock }, { clock, onStream, processBudget, runtimeCeilings }), accepted }
      })
      const send = async (link: number, runtime: string, bytes: number) => {
        const { server, accepted } = links[link]!
        const sender = new StreamRecorder(server.open())
        sender.stream.write(Buffer.alloc(bytes, runtime))
        await until(() => sender.stream.queuedBytes === 0 || sender.resetWith !== undefined)
        await turns()
        return { sender, taker: accepted.at(-1)! }
      }
      return { runtimeCeilings, send, links }
    }

    test('a runtime that fills its own is reset, over all of them, and its neighbours are served', async () => {
      const { runtimeCeilings, send, links } = start(300 * KIB)
      const quiet = await send(0, 'q', 200 * KIB)
      const first = await send(0, 'g', 200 * KIB)
      const second = await send(1, 'g', 90 * KIB)
      expect(runtimeCeilings.bytesOf('g')).toBe(290 * KIB)
      const third = await send(0, 'g', 30 * KIB)
      expect([quiet, first, second, third].map(({ sender }) => sender.resetWith)).toEqual([
        undefined,
        'limit',
        undefined,
        undefined,
      ])
      expect([runtimeCeilings.bytesOf('q'), runtimeCeilings.bytesOf('g')]).toEqual([200 * KIB, 120 * KIB])
      for (const { taker } of [quiet, second, third]) taker.stream.consumed(taker.receivedBytes)
      expect(runtimeCeilings.runtimes).toBe(0)
      expect(links.map(({ client }) => client.bufferedBytes)).toEqual([0, 0, 0])
    })

    test('where its last bytes arrive, nobody is reset for what others hold in another of them', async () => {
      const { runtimeCeilings, send, links } = start(300 * KIB)
      const greedy = await send(0, 'g', 200 * KIB)
      const second = await send(0, 'g', 90 * KIB)
      const last = await send(1, 'g', 30 * KIB)
      expect([greedy, second, last].map(({ sender }) => sender.resetWith)).toEqual(['limit', undefined, undefined])
      expect(runtimeCeilings.bytesOf('g')).toBe(120 * KIB)
      for (const { client } of links) client.close('done')
      expect([runtimeCeilings.sessions, runtimeCeilings.runtimes]).toEqual([0, 0])
    })

    test("at the process's ceiling the runtime that holds most over all of them is reset, not the greediest session", async () => {
      const processBudget = createBufferBudget(300 * KIB)
      const { runtimeCeilings, send, links } = start(1000 * KIB, processBudget)
      const greedy = [await send(0, 'g', 100 * KIB), await send(1, 'g', 80 * KIB)]
      const quiet = [await send(2, 'q', 60 * KIB), await send(2, 'r', 55 * KIB), await send(2, 's', 10 * KIB)]
      expect([...greedy, ...quiet].map(({ sender }) => sender.resetWith)).toEqual([
        'limit',
        ...Array(4).fill(undefined),
      ])
      expect([processBudget.usedBytes, runtimeCeilings.usedBytes]).toEqual([205 * KIB, 205 * KIB])
      const left = vi.spyOn(processBudget, 'leave')
      for (const { client } of links) client.close('done')
      expect(left.mock.calls).toEqual([[runtimeCeilings]])
      expect([processBudget.usedBytes, runtimeCeilings.sessions]).toEqual([0, 0])
    })

    test('above 75 % of it its streams get no credit, and those of others do', async () => {
      const { send } = start(400 * KIB)
      const greedy = await send(0, 'g', 200 * KIB)
      await send(1, 'g', 200 * KIB)
      const quiet = await send(0, 'q', 200 * KIB)
      for (const { taker } of [greedy, quiet]) taker.stream.consumed(70 * KIB)
      await turns()
      expect(greedy.taker.stream.receive.openBytes).toBe(56 * KIB)
      expect(quiet.taker.stream.receive.openBytes).toBe(126 * KIB)
    })
  })

  test('above 75 % no window grows', async () => {
    const grown = async (sessionBufferBytes: number): Promise<number> => {
      const accepted: StreamRecorder[] = []
      const { server } = sessionPair(
        {},
        { sessionBufferBytes, onStream: stream => accepted.push(new StreamRecorder(stream, accepted.length > 0)) },
      )
      server.open().write(pattern(100 * KIB))
      await until(() => accepted[0]?.receivedBytes === 100 * KIB)
      const stream = server.open()
      for (let i = 0; i < 100; i++) stream.write(pattern(200 * KIB))
      await until(() => stream.queuedBytes === 0)
      return accepted[1]!.stream.receive.sizeBytes
    }
    expect(await grown(130 * KIB)).toBe(256 * KIB)
    expect(await grown(32 * KIB * KIB)).toBeGreaterThan(256 * KIB)
  })
})
