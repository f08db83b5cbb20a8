import { expect, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { CarrierSource } from '../../../server/edge/carriers.ts'
import { Hold } from '../../../server/edge/hold.ts'
import { Waiting } from '../../../server/edge/waiting.ts'
import { DEFAULT_HOLD } from '../../../server/limits.ts'
import { EXCHANGE } from '../../support/ends.ts'

test('an exchange waits no longer once its runtime is not expected any more', () => {
  let isExpected = true
  const carriers = { ask: () => false, isExpected: () => isExpected } as unknown as CarrierSource
  const failed: SallyportError[] = []
  const owner = {
    request: { ...EXCHANGE, runtime: 'demo' },
    resume: () => false,
    fail: (error: SallyportError) => void failed.push(error),
    threw: () => expect.unreachable(),
  }
  const hold = new Hold(DEFAULT_HOLD)
  const waiting = new Waiting(carriers, hold, owner)
  const reason = new SallyportError('runtime-offline')
  expect(waiting.enter(reason, undefined, 0, 60_000)).toBeUndefined()
  waiting.recheck()
  expect([failed, hold.requests]).toEqual([[], 1])
  isExpected = false
  waiting.recheck()
  expect([failed, hold.requests]).toEqual([[reason], 0])
})
