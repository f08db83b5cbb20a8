import { describe, expect, test } from 'vitest'
import { bearsToken, isHostAllowed } from '../../admin/access.ts'

describe('A2: Host', () => {
  test.each(['127.0.0.1', '127.0.0.1:9090', '[::1]:9090', 'localhost:9090', 'LOCALHOST', '10.1.2.3:1'])(
    '%s may ask',
    host => {
      expect(isHostAllowed(host)).toBe(true)
    },
  )

  test.each([
    'evil.example',
    'evil.example:9090',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '127.0.0.1@evil.example',
    '[evil.example]',
    '',
    'a b',
    '127.0.0.1:9090:1',
    undefined,
  ])('%s may not', host => {
    expect(isHostAllowed(host)).toBe(false)
  })
})

describe('A3: bearer token', () => {
  test.each(['Bearer secret-token-1', 'bearer secret-token-1', 'Bearer  secret-token-1'])('%s is accepted', field => {
    expect(bearsToken(field, 'secret-token-1')).toBe(true)
  })

  test.each(['Bearer secret-token-2', 'Basic secret-token-1', 'secret-token-1', 'Bearer ', '', undefined])(
    '%s is not',
    field => {
      expect(bearsToken(field, 'secret-token-1')).toBe(false)
    },
  )

  test('nobody can present an empty token', () => {
    expect(bearsToken('Bearer ', '')).toBe(false)
    expect(bearsToken('Bearer x', '')).toBe(false)
  })
})
