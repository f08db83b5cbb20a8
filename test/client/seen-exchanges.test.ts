import { describe, expect, it } from 'vitest'
import { IdSet } from '../../client/id-set.ts'
import { SeenExchanges } from '../../client/seen-exchanges.ts'
import { liveBytes } from '../../load-tests/lib/garbage.ts'
import { isSafe } from '../../protocol/http/methods.ts'

describe('SeenExchanges', () => {
  it('refuses an exchange that is in progress, or ended within 60 s', () => {
    let now = 0
    const begun = new SeenExchanges(100, () => now)
    expect(begun.begin('a', 0)).toBeUndefined()
    expect(begun.begin('a', 1)).toBe('already-begun')
    begun.end('a')
    now = 59_999
    expect(begun.begin('a', 1)).toBe('already-begun')
    // What ended within 15 s is forgotten together.
    now = 75_000
    expect(begun.begin('a', 1)).toBeUndefined()
  })

  it('has no gap if 5,000 end each second, and keeps little for each', { tags: ['slow'] }, async () => {
    const perSecond = 5000
    const id = (i: number) => {
      const bytes = Buffer.alloc(16)
      bytes.writeDoubleBE(i)
      return bytes.toString('latin1')
    }
    let now = 0
    const before = await liveBytes()
    const begun = new SeenExchanges(undefined, () => now)
    const refused = new Set<string | undefined>()
    let ended = 0
    for (; now < 120_000; now += 1000) {
      for (let i = 0; i < perSecond; i++) {
        refused.add(begun.begin(id(ended), 1))
        begun.end(id(ended++))
      }
    }
    expect(refused).toEqual(new Set([undefined]))
    expect(((await liveBytes()) - before) / begun.size).toBeLessThan(24)
    expect(begun.size).toBeGreaterThanOrEqual(60 * perSecond)
    for (let i = ended - 59 * perSecond; i < ended; i++) refused.add(begun.begin(id(i), 1))
    expect(refused).toEqual(new Set([undefined, 'already-begun']))
    now += 75_000
    expect(begun.begin(id(ended - 1), 1)).toBeUndefined()
    expect(begun.size).toBe(1)
  })

  it('forgets exchanges that ended long ago', () => {
    let now = 0
    const begun = new SeenExchanges(100, () => now)
    for (let i = 0; i < 50; i++) {
      begun.begin(String(i), 0)
      begun.end(String(i))
    }
    expect(begun.size).toBe(50)
    now = 75_000
    begun.begin('x', 0)
    expect(begun.size).toBe(1)
  })

  it('stays bounded, and then trusts no later attempt until the gap is over', () => {
    let now = 0
    const begun = new SeenExchanges(2, () => now)
    for (const id of ['a', 'b', 'c']) {
      begun.begin(id, 0)
      begun.end(id)
    }
    expect(begun.size).toBe(2)
    expect(begun.begin('a', 1)).toBe('too-late')
    expect(begun.begin('new', 0)).toBeUndefined()
    now = 60_000
    expect(begun.begin('a', 1)).toBeUndefined()
  })

  it('ends only what it began', () => {
    const begun = new SeenExchanges()
    begun.end('never')
    expect(begun.size).toBe(0)
  })
})

describe('IdSet', () => {
  it('has what was added, and nothing else', () => {
    const chosen = (first: number, second: number) => {
      const bytes = Buffer.alloc(16, 0x80)
      bytes.writeUInt32LE(first, 0)
      bytes.writeUInt32LE(second, 4)
      return bytes.toString('latin1')
    }
    const ids = new IdSet()
    const added = [0, 2, 3, 0x80, 0xff00_0000, 0xffff_ffff].flatMap(one => [
      ...Array.from({ length: 1000 }, (_, two) => chosen(one, two + 1)),
      ...Array.from({ length: 1000 }, (_, two) => chosen(two + 2 ** 16, one)),
    ])
    for (const id of added) expect(ids.has(id)).toBe(false)
    for (const id of added) expect(ids.add(id)).toBe(true)
    for (const id of added) expect([ids.has(id), ids.add(id)]).toEqual([true, false])
    expect(ids.size).toBe(added.length)
    expect(ids.has(chosen(4, 4))).toBe(false)
  })
})

describe('isSafe', () => {
  it('knows the safe methods, in upper case only', () => {
    expect(['GET', 'HEAD', 'OPTIONS', 'QUERY'].every(isSafe)).toBe(true)
    expect(['POST', 'PUT', 'DELETE', 'PATCH', 'get', 'FOO'].some(isSafe)).toBe(false)
  })
})
