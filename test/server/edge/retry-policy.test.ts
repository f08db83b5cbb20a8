import { expect, test } from 'vitest'
import { type RefusalCode, RefusedError } from '../../../protocol/wire/exchange/refusal.ts'
import { RetryPolicy } from '../../../server/edge/retry-policy.ts'
import type { Carrier } from '../../../server/registry.ts'

test.each<[RefusalCode, rests: number]>([
  ['not-here', 1],
  ['overloaded', 1],
  ['not-its-host', 0],
])(
  '%s: another one is asked, and whether this one rests depends on whether the refusal concerns other requests',
  (code, rests) => {
    let rested = 0
    const carrier = { instance: 'one', refused: () => rested++ } as unknown as Carrier
    const picked: unknown[][] = []
    const picker = {
      pick(...wanted: unknown[]) {
        picked.push(wanted)
        return undefined
      },
    }
    const policy = new RetryPolicy(picker, 'demo', 'hooks.customer.example')
    expect([policy.mayRetry(carrier, new RefusedError(code), 'POST', false), rested]).toEqual([true, rests])
    policy.next()
    const host = 'hooks.customer.example'
    expect(picked).toEqual([
      ['demo', carrier, 'one', host],
      ['demo', carrier, undefined, host],
    ])
  },
)
