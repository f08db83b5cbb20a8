import { expect, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { type RefusalCode, RefusedError } from '../../../protocol/wire/exchange/refusal.ts'
import { RetryPolicy } from '../../../server/edge/retry-policy.ts'
import type { Carrier } from '../../../server/registry.ts'

const GET = { method: 'GET', path: '/', headers: ['accept', 'x-http-method'] }
const POST = { ...GET, method: 'POST' }

test.each<[RefusalCode, retries: boolean, rests: number]>([
  ['not-here', true, 1],
  ['draining', true, 1],
  ['overloaded', true, 1],
  ['not-its-host', true, 0],
  ['malformed', false, 0],
  ['unsupported', false, 0],
  ['already-begun', false, 0],
  ['too-late', false, 0],
  ['caller-not-allowed', false, 0],
])(
  '%s: whether another one is asked (%s) and this one rests (%s) depends on whether the refusal concerns other requests',
  (code, retries, rests) => {
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
    expect([policy.mayRetry(carrier, new RefusedError(code), POST, false), rested]).toEqual([retries, rests])
    policy.next()
    const host = 'hooks.customer.example'
    expect(picked).toEqual([
      ['demo', carrier, 'one', host],
      ['demo', carrier, undefined, host],
    ])
  },
)

test('R7 an unsafe request that an instance may have begun goes to it again only while it remembers that', () => {
  let now = 1_000
  const carrier = { instance: 'one' } as unknown as Carrier
  const policy = new RetryPolicy({ pick: () => carrier }, 'demo', undefined, () => now)
  const lost = new SallyportError('session-lost')
  expect([policy.begin(), policy.leftMs]).toEqual([0, Number.POSITIVE_INFINITY])
  now += 40_000
  expect(policy.mayRetry(carrier, lost, POST, false)).toBe(true)
  expect([policy.next(), policy.leftMs]).toEqual([carrier, 5_000])
  // What counts is the first attempt that it may have begun.
  policy.begin()
  now += 5_000
  expect([policy.next(), policy.leftMs]).toEqual([undefined, 0])
  expect(policy.mayRetry(carrier, lost, POST, false)).toBe(false)
})

test('a safe request may be sent again at any time', () => {
  let now = 1_000
  const carrier = { instance: 'one' } as unknown as Carrier
  const policy = new RetryPolicy({ pick: () => carrier }, 'demo', undefined, () => now)
  policy.begin()
  now += 600_000
  expect(policy.mayRetry(carrier, new SallyportError('session-lost'), GET, false)).toBe(true)
  expect(policy.next()).toBe(carrier)
})

test.each([
  ...[
    'x-http-method-override',
    'x-http-method',
    'x-method-override',
    'x_http_method_override',
    'x.method.override',
  ].map(name => ({ headers: ['accept', '*/*', name, 'DELETE'] })),
  { path: '/a?b=1&_method=DELETE' },
])('R7 a GET that may run as another method is not sent again, since no instance remembers it: %j', over => {
  const carrier = { instance: 'one', hops: 0, usable: false } as unknown as Carrier
  const request = { ...GET, ...over }
  const policy = () => new RetryPolicy({ pick: () => carrier }, 'demo')
  const lost = policy()
  expect([lost.mayRetry(carrier, new SallyportError('session-lost'), request, false), lost.unsure]).toEqual([
    false,
    true,
  ])
  expect(policy().mayRetry(carrier, new SallyportError('session-lost'), request, true)).toBe(true)
  expect(policy().mayRetry(carrier, new RefusedError('not-here'), request, false)).toBe(true)
})

test.each<[what: string, attempts: number, SallyportError, carrier?: Partial<Carrier>]>([
  ['a lost session', 18, new SallyportError('session-lost')],
  ['not-here, of a session that has ended', 18, new RefusedError('not-here')],
  ['not-here, of a replica', 18, new RefusedError('not-here'), { hops: 1 }],
  ['not-here, of a client', 4, new RefusedError('not-here'), { usable: true }],
  ['a lost session, as a client says', 4, new SallyportError('session-lost'), { usable: true }],
  ['draining', 4, new RefusedError('draining')],
  ['overloaded', 4, new RefusedError('overloaded')],
])('%s: at most %d attempts if all fail', (_, most, error, kind) => {
  const carrier = { instance: 'one', hops: 0, usable: false, ...kind } as unknown as Carrier
  const policy = new RetryPolicy({ pick: () => carrier }, 'demo', undefined, () => 1_000)
  do policy.begin()
  while (policy.mayRetry(carrier, error, GET, false))
  expect(policy.attempts).toBe(most)
})

test('sessions of different instances are lost for different reasons', () => {
  let instances = 0
  const policy = new RetryPolicy({ pick: () => undefined }, 'demo')
  const fails = () => {
    policy.begin()
    const carrier = { instance: `${instances++}`, hops: 0, usable: false } as unknown as Carrier
    return policy.mayRetry(carrier, new SallyportError('session-lost'), GET, false)
  }
  while (fails());
  expect(policy.attempts).toBe(4)
})
