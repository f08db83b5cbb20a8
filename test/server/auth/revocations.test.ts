import { describe, expect, test } from 'vitest'
import { Revocations } from '../../../server/auth/revocations.ts'

describe('revocations', () => {
  const identity = {
    runtime: 'demo',
    subject: 'demo',
    issuer: undefined,
    tokenId: 'id',
    issuedAt: 100,
    expiresAt: 200,
    certificateThumbprint: undefined,
    allowCallers: undefined,
    hosts: [],
  }

  test('every given member must fit', () => {
    const covered = (rule: object) => {
      const revocations = new Revocations(() => 0)
      revocations.add(rule)
      return revocations.covers(identity)
    }
    expect(covered({ tokenId: 'id' })).toBe(true)
    expect(covered({ tokenId: 'other' })).toBe(false)
    expect(covered({ runtime: 'demo', issuedBefore: 100 })).toBe(false)
    expect(covered({ runtime: 'demo', issuedBefore: 101 })).toBe(true)
    expect(() => covered({ until: 5 })).toThrow(TypeError)
  })

  test('are bounded, and expired ones are forgotten', () => {
    let now = 0
    const revocations = new Revocations(() => now)
    for (let i = 0; i < 10_000; i++) revocations.add({ tokenId: `${i}`, until: 5 })
    expect(() => revocations.add({ runtime: 'x' })).toThrow(RangeError)
    now = 65_000
    revocations.add({ runtime: 'x' })
    expect(revocations.list).toEqual([{ runtime: 'x' }])
  })

  test('cover a token that expires when they end for as long as it may be accepted', () => {
    let nowS = 0
    const revocations = new Revocations(() => nowS * 1000)
    revocations.add({ tokenId: 'id', until: identity.expiresAt })
    for (nowS of [199, 200, 259]) expect(revocations.covers(identity)).toBe(true)
    nowS = 260
    expect(revocations.covers(identity)).toBe(false)
  })

  test('stay in force while the clock gives no time', () => {
    const revocations = new Revocations(() => Number.NaN)
    revocations.add({ tokenId: 'id', until: 5 })
    expect(revocations.covers(identity)).toBe(true)
  })

  test('that are added again count once', () => {
    const revocations = new Revocations(() => 0)
    const rules = [
      { tokenId: 'a' },
      { runtime: 'x', issuedBefore: 1 },
      { runtime: 'x', issuedBefore: 2 },
      { issuedBefore: 3 },
    ]
    for (let i = 0; i < 10_000; i++) for (const rule of rules) revocations.add({ ...rule })
    expect(revocations.list).toEqual(rules)
  })
})
