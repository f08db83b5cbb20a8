import { describe, expect, test } from 'vitest'
import { CreditAdvance } from '../../../../protocol/wire/yamux/advance.ts'
import { ReceiveWindow } from '../../../../protocol/wire/yamux/receive-window.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import { linkPair } from './link.ts'
import { FakeClock, StreamRecorder } from './support.ts'

const KIB = 1024
const MIB = 1024 * KIB
const RTT_MS = 50

/** A path of 25 MB/s; a request for a body gets one of this many bytes, in chunks as an upstream sends them. */
function longPath(bodyBytes: number) {
  const clock = new FakeClock()
  const [left, right] = linkPair({ clock, bytesPerMs: 25_000, rttMs: RTT_MS })
  const server = createSession(left, { role: 'server', clock })
  const client = createSession(right, {
    role: 'client',
    clock,
    onStream: stream => answer(stream, bodyBytes),
  })
  for (const session of [server, client]) session.setPeerLimits({ windowBytes: 64 * KIB })
  const ask = (text: string) => {
    const recorder = new StreamRecorder(server.open())
    recorder.stream.write(Buffer.from(text))
    recorder.stream.end()
    return recorder
  }
  const took = async (recorder: StreamRecorder): Promise<number> => {
    const began = clock.now()
    while (!recorder.ended) await clock.advance(1)
    return clock.now() - began
  }
  return { clock, server, ask, took }
}

function answer(stream: Stream, bodyBytes: number): void {
  let left = 0
  const fill = () => {
    while (left > 0 && stream.queuedBytes < 128 * KIB) {
      const bytes = Math.min(left, 64 * KIB)
      left -= bytes
      stream.write(new Uint8Array(bytes))
    }
    if (left === 0) stream.end()
  }
  const recorder = new StreamRecorder(stream)
  recorder.data = chunk => {
    stream.consumed(chunk.length)
    left = Buffer.from(chunk).toString() === 'body' ? bodyBytes : 100
    fill()
  }
  recorder.consumed = fill
}

describe('a long path', () => {
  test('a later body begins with the window that an earlier one needed', async () => {
    const { ask, took } = longPath(8 * MIB)
    const atRate = (8 * MIB) / 25_000 + RTT_MS
    await took(ask('body'))
    expect(await took(ask('body'))).toBeLessThan(1.1 * atRate)
  })

  test('a small exchange after the beginning of a body does not wait for a whole window', async () => {
    const { clock, ask, took } = longPath(8 * MIB)
    await took(ask('body'))
    const body = ask('body')
    await clock.advance(2)
    const small = await took(ask('small'))
    expect(body.ended).toBe(false)
    expect(small).toBeLessThan(RTT_MS + 25)
  })
})

describe('credit in advance', () => {
  const learned = () => {
    const advance = new CreditAdvance(3 * MIB)
    const window = new ReceiveWindow(64 * KIB)
    window.neededBytes = 2 * MIB
    advance.learn(window, 0)
    return advance
  }

  test('is bounded over all streams, and comes back when they end or have earned it', () => {
    const advance = learned()
    const windows = [1, 2, 3].map(() => new ReceiveWindow(64 * KIB))
    const granted = windows.map(window => {
      const bytes = advance.grant(window, 0, 4 * MIB, RTT_MS, 1)
      window.credit(bytes)
      return bytes
    })
    expect(granted).toEqual([2 * MIB - 64 * KIB, 1 * MIB + 64 * KIB, 0])
    advance.release(windows[0]!)
    windows[1]!.neededBytes = 2 * MIB
    advance.learn(windows[1]!, 2)
    expect(advance.grant(windows[2]!, 0, 4 * MIB, RTT_MS, 3)).toBe(2 * MIB - 64 * KIB)
  })

  test('is not given on a short path, nor beyond the largest window, nor for what was needed long ago', () => {
    const advance = learned()
    const window = () => new ReceiveWindow(64 * KIB)
    expect(advance.isWorthwhile(64 * KIB, 0.2, 1)).toBe(false)
    expect(advance.grant(window(), 0, 4 * MIB, 0.2, 1)).toBe(0)
    expect(advance.isWorthwhile(64 * KIB, RTT_MS, 1)).toBe(true)
    expect(advance.grant(window(), 0, 512 * KIB, RTT_MS, 1)).toBe(448 * KIB)
    expect(advance.isWorthwhile(64 * KIB, RTT_MS, 61_000)).toBe(false)
    expect(advance.grant(window(), 0, 4 * MIB, RTT_MS, 61_000)).toBe(192 * KIB)
  })
})
