import { describe, expect, it } from 'vitest'
import { BegunExchanges } from '../../client/begun.ts'
import { isSafe } from '../../protocol/methods.ts'

describe('BegunExchanges', () => {
  it('refuses an exchange that is under way, or ended within 60 s', () => {
    let now = 0
    const begun = new BegunExchanges(100, () => now)
    expect(begun.begin('a', 0)).toBeUndefined()
    expect(begun.begin('a', 1)).toBe('already-begun')
    begun.end('a')
    now = 59_999
    expect(begun.begin('a', 1)).toBe('already-begun')
    now = 60_000
    expect(begun.begin('a', 1)).toBeUndefined()
  })

  it('forgets what is over', () => {
    let now = 0
    const begun = new BegunExchanges(100, () => now)
    for (let i = 0; i < 50; i++) {
      begun.begin(String(i), 0)
      begun.end(String(i))
    }
    expect(begun.size).toBe(50)
    now = 60_001
    begun.begin('x', 0)
    expect(begun.size).toBe(1)
  })

  it('stays bounded, and then trusts no later attempt until the gap is over', () => {
    let now = 0
    const begun = new BegunExchanges(2, () => now)
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
    const begun = new BegunExchanges()
    begun.end('never')
    expect(begun.size).toBe(0)
  })
})

describe('isSafe', () => {
  it('knows the safe methods, in upper case alone', () => {
    expect(['GET', 'HEAD', 'OPTIONS', 'QUERY'].every(isSafe)).toBe(true)
    expect(['POST', 'PUT', 'DELETE', 'PATCH', 'get', 'FOO'].some(isSafe)).toBe(false)
  })
})
