import { describe, expect, test } from 'vitest'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { Replay } from '../../../server/edge/replay.ts'

describe('replay', () => {
  test('keeps what arrives up to the bound of one exchange and of all', () => {
    const budget = new ReplayBudget(100, 150)
    const one = new Replay(budget, 'rt', '192.0.2.1')
    const two = new Replay(budget, 'rt', '192.0.2.1')
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
    const [one, two] = [new Replay(budget, 'rt', '192.0.2.1'), new Replay(budget, 'rt', '192.0.2.1')]
    one.add(new Uint8Array(400))
    two.add(new Uint8Array(401))
    expect([one.whole, one.long, two.whole, budget.used]).toEqual([true, true, false, 400])
    one.acknowledged = true
    expect([one.whole, budget.used]).toEqual([false, 0])
  })

  const runtimes = ['a', 'b', 'c', 'd', 'e', 'f']
  const networks = runtimes.map((_, i) => `192.0.2.${i + 1}`)
  test.each([
    ['by nobody else', [], []],
    ['by its network at its runtime', ['honest'], ['192.0.2.9']],
    ['by another network', ['honest'], ['192.0.2.1']],
    ['by several networks', ['honest'], networks],
    ['at another runtime', ['a'], ['192.0.2.9']],
    ['at several runtimes', runtimes, ['192.0.2.9']],
    ['by several networks at several runtimes', runtimes, networks],
  ])('B3 if all that may be kept is used up %s, a small body is still kept', (_by, owners, addresses) => {
    const budget = new ReplayBudget(100, 2_400)
    const greedy = owners.flatMap(owner => addresses.map(address => ({ owner, address })))
    const replays: Replay[] = []
    for (let i = 0; greedy.length > 0 && i < 72; i++) {
      const { owner, address } = greedy[i % greedy.length]!
      const replay = new Replay(budget, owner, address)
      replay.add(new Uint8Array(100))
      replays.push(replay)
    }
    expect(replays.filter(({ whole }) => whole)).toHaveLength(replays.length / 3)
    // Of one network, the oldest are given up.
    if (greedy.length === 1) expect(replays.findIndex(({ whole }) => whole)).toBe(48)
    const honest = new Replay(budget, 'honest', '192.0.2.9')
    honest.add(new Uint8Array(30))
    expect([honest.whole, budget.used <= budget.total]).toEqual([true, true])
    for (const { owner, address } of greedy) new Replay(budget, owner, address).add(new Uint8Array(20))
    expect(honest.whole).toBe(true)
  })

  test('what waits or is being sent does not count, and is kept whatever others keep', () => {
    const budget = new ReplayBudget(100, 100)
    const [one, two] = [new Replay(budget, 'rt', '192.0.2.1'), new Replay(budget, 'rt', '192.0.2.2')]
    one.add(new Uint8Array(60))
    one.keepAll = true
    one.add(new Uint8Array(600))
    two.add(new Uint8Array(90))
    expect([one.whole, one.bytes, budget.used]).toEqual([true, 660, 90])
    one.keepAll = false
    expect([one.whole, two.whole, budget.used]).toEqual([false, true, 90])
  })

  test('what is too long to be kept after a wait takes nothing from others', () => {
    const budget = new ReplayBudget(100, 800)
    const others = [1, 2].map(i => new Replay(budget, 'others', `192.0.2.${i}`))
    for (const other of others) other.add(new Uint8Array(400))
    const large = new Replay(budget, 'large', '192.0.2.9')
    large.keepAll = true
    large.add(new Uint8Array(401))
    large.keepAll = false
    expect([large.whole, others.map(({ whole }) => whole), budget.used]).toEqual([false, [true, true], 800])
  })

  test('a small piece of a large buffer is copied', () => {
    const replay = new Replay(new ReplayBudget(100, 400), 'rt', '192.0.2.1')
    const large = Buffer.alloc(65_536, 'a')
    replay.add(large.subarray(0, 10))
    large.fill('b')
    expect(replay.chunks[0]!.buffer.byteLength).toBe(10)
    expect(Buffer.from(replay.chunks[0]!).toString()).toBe('a'.repeat(10))
  })

  test.each([1, 100, 511])('pieces of %i bytes between large ones take little more memory than their bytes', piece => {
    const replay = new Replay(new ReplayBudget(65_536, 1_048_576), 'rt', '192.0.2.1')
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
    const replay = new Replay(new ReplayBudget(50_000, 200000), 'rt', '192.0.2.1')
    for (let at = 0; at < body.length; at += piece) replay.add(body.subarray(at, at + piece))
    expect(replay.chunks.length).toBeLessThanOrEqual(32)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
    expect(Buffer.concat(replay.chunks)).toEqual(body)
    expect([replay.bytes, replay.whole]).toEqual([50_000, true])
  })

  test('small pieces between large ones keep alive little more memory than their own', () => {
    const replay = new Replay(new ReplayBudget(50_000, 200_000), 'rt', '192.0.2.1')
    while (replay.bytes < 48_000) {
      replay.add(new Uint8Array(1))
      replay.add(new Uint8Array(1024))
    }
    expect(replay.whole).toBe(true)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
  })

  test('replayed bytes stay as they were, and small and large pieces keep their order', () => {
    const replay = new Replay(new ReplayBudget(10_000, 40000), 'rt', '192.0.2.1')
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
