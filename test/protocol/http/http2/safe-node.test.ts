import { expect, test } from 'vitest'
import { survivesResets } from '../../../../protocol/http/http2/safe-node.ts'

test('the Node that we run survives', () => {
  expect(survivesResets()).toBe(true)
})

test.each(['22.23.3', '22.24.0', '24.21.0', '26.8.2', '26.10.0', '27.0.0', '28.1.2'])('%s survives', version => {
  expect(survivesResets(version)).toBe(true)
})

test.each(['20.20.2', '22.19.0', '22.23.2', '23.11.0', '24.7.0', '24.20.0', '25.9.0', '26.6.0', '26.8.1'])(
  '%s does not',
  version => {
    expect(survivesResets(version)).toBe(false)
  },
)
