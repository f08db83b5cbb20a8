import { describe, expect, test } from 'vitest'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { Replay } from '../../../server/edge/replay.ts'

describe('replay', () => {
  test('keeps what arrives up to the bound of one exchange and of all', () => {
    const budget = new ReplayBudget(100, 600)
    const one = new Replay(budget, 'rt')
    const two = new Replay(budget, 'rt')
    one.acknowledged = true
    two.acknowledged = true
    one.add(new Uint8Array(90))
    two.add(new Uint8Array(60))
    expect([one.whole, two.whole, budget.used]).toEqual([true, true, 150])
    one.add(new Uint8Array(1))
    expect([one.whole, one.chunks.length, budget.used]).toEqual([false, 0, 60])
    two.release()
    two.release()
    expect(budget.used).toBe(0)
  })

  test('keeps more once the peer has taken it', () => {
    const budget = new ReplayBudget(100, 1_800)
    const [one, two] = [new Replay(budget, 'rt'), new Replay(budget, 'rt')]
    one.add(new Uint8Array(400))
    two.add(new Uint8Array(51))
    expect([one.whole, one.long, two.whole, budget.used]).toEqual([true, true, false, 400])
    one.acknowledged = true
    expect([one.whole, budget.used]).toEqual([false, 0])
    const three = new Replay(budget, 'rt')
    three.add(new Uint8Array(401))
    expect([three.whole, budget.used]).toEqual([false, 0])
  })

  test('B3 one runtime keeps a quarter of the total, and takes nothing from another', () => {
    const budget = new ReplayBudget(100, 400)
    const replays = Array.from({ length: 5 }, () => new Replay(budget, 'greedy'))
    for (const replay of replays) replay.add(new Uint8Array(25))
    expect([replays.map(({ whole }) => whole), budget.used]).toEqual([[true, true, true, true, false], 100])
    const other = new Replay(budget, 'other')
    other.add(new Uint8Array(100))
    expect([other.whole, budget.used]).toEqual([true, 200])
    replays[0]!.release()
    const again = new Replay(budget, 'greedy')
    again.add(new Uint8Array(25))
    expect([again.whole, budget.used]).toEqual([true, 200])
  })

  test('a small piece of a large buffer is copied', () => {
    const replay = new Replay(new ReplayBudget(100, 400), 'rt')
    const large = Buffer.alloc(65_536, 'a')
    replay.add(large.subarray(0, 10))
    large.fill('b')
    expect(replay.chunks[0]!.buffer.byteLength).toBe(10)
    expect(Buffer.from(replay.chunks[0]!).toString()).toBe('a'.repeat(10))
  })

  test.each([1, 100, 511])('pieces of %i bytes between large ones take little more memory than their bytes', piece => {
    const replay = new Replay(new ReplayBudget(65_536, 1_048_576), 'rt')
    for (let i = 0; i < 60; i++) {
      replay.add(Buffer.alloc(piece, i))
      replay.add(new Uint8Array(1024))
    }
    const { chunks, bytes } = replay
    expect(Buffer.concat(chunks)).toEqual(
      Buffer.concat(Array.from({ length: 60 }, (_, i) => [Buffer.alloc(piece, i), Buffer.alloc(1024)]).flat()),
    )
    expect(chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(2 * bytes)
  })

  test.each([1, 7, 1023])('pieces of %i bytes are kept as a few, and in little more memory', piece => {
    const body = Buffer.from(Array.from({ length: 50_000 }, (_, i) => i % 251))
    const replay = new Replay(new ReplayBudget(50_000, 200000), 'rt')
    for (let at = 0; at < body.length; at += piece) replay.add(body.subarray(at, at + piece))
    expect(replay.chunks.length).toBeLessThanOrEqual(32)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
    expect(Buffer.concat(replay.chunks)).toEqual(body)
    expect([replay.bytes, replay.whole]).toEqual([50_000, true])
  })

  test('small pieces between large ones keep alive little more memory than their own', () => {
    const replay = new Replay(new ReplayBudget(50_000, 200_000), 'rt')
    while (replay.bytes < 48_000) {
      replay.add(new Uint8Array(1))
      replay.add(new Uint8Array(1024))
    }
    expect(replay.whole).toBe(true)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
  })

  test('replayed bytes stay as they were, and small and large pieces keep their order', () => {
    const replay = new Replay(new ReplayBudget(10_000, 40000), 'rt')
    const pieces = ['a', 'bc', 'd'.repeat(2000), 'e', 'f', 'g'.repeat(2000), 'h']
    let sent = ''
    for (const piece of pieces) {
      replay.add(Buffer.from(piece))
      const chunks = replay.chunks
      sent += piece
      expect(Buffer.concat(chunks).toString()).toBe(sent)
    }
    replay.release()
    expect([replay.chunks.length, replay.bytes]).toEqual([0, 0])
  })
})
