import { describe, expect, test } from 'vitest'
import { Policies } from '../../../server/edge/policies.ts'

describe('policies', () => {
  const policy = (origin: string) => ({ origins: [origin] })

  test('the longest prefix of whole segments wins', () => {
    const policies = new Policies(policy('fallback'), 1000, () => 0)
    const rules = ['/', '/app', '/app/deep/'].map(path => ({ path, policy: policy(path) }))
    policies.publish('r', rules)
    const found = (path: string) => policies.find('r', path, true)?.origins[0]
    expect(['/x', '/app', '/app?q=/app/deep/', '/apple', '/app/deep', '/app/deep/x'].map(found)).toEqual([
      '/',
      '/app',
      '/app',
      '/',
      '/app',
      '/app/deep/',
    ])
    expect(policies.find('other', '/', true)?.origins).toEqual(['fallback'])
    policies.publish('r', [])
    expect(found('/app')).toBe('fallback')
  })

  test('are bounded: the ones published longest ago go first', () => {
    const policies = new Policies(undefined, 1000, () => 0)
    for (let i = 0; i <= 10_000; i++) policies.publish(`r${i}`, [{ path: '/', policy: policy('o') }])
    expect(policies.find('r0', '/', true)).toBeUndefined()
    expect(policies.find('r1', '/', true)).toBeDefined()
  })
})
