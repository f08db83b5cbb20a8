/** B2: an answer may arrive after its session has ended, and then keeps nothing of it alive. */
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { CLOSE } from '../../protocol/wire/transport.ts'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import type { Identity } from '../../server/auth/claims.ts'
import { TokenRefused } from '../../server/auth/refusal.ts'
import { RuntimeSession, type RuntimeSessionContext } from '../../server/control/runtime-session.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const identity = {
  runtime: 'demo',
  expiresAt: Date.now() / 1000 + 3600,
  allowCallers: undefined,
} as unknown as Identity

/** A session that said hello and whose fresh token is being checked. */
async function renewing() {
  const [ours, theirs] = memoryPair()
  const checked = Promise.withResolvers<Identity>()
  const asked = Promise.withResolvers<void>()
  const closed = Promise.withResolvers<void>()
  const context: RuntimeSessionContext = {
    urlOf: () => undefined,
    features: [],
    replica: 'replica-1',
    logger: noLogger,
    clockToleranceS: 30,
    session: {},
    now: Date.now,
    reauthenticate: () => {
      asked.resolve()
      return checked.promise
    },
    onHello() {},
    onReady() {},
    onActive() {},
    onRenewed() {},
    onDrain() {},
    onRoom() {},
    onClosed: () => closed.resolve(),
  }
  const session = new RuntimeSession(context, ours, {
    id: 'session-1',
    identity,
    address: '127.0.0.1',
    thumbprint: undefined,
    connectedAt: Date.now(),
    budgets: {},
    settled() {},
  })
  const client = createSession(theirs, { role: 'client' })
  const hello = { minor: 0, software: 'test/1', instance: 'i', startedMs: 0, lastEpoch: 0, connection: 0 }
  client.control({ type: 'hello', ...hello })
  client.control({ type: 'reauth', token: 'fresh' })
  await asked.promise
  return { session, client, checked, closed: closed.promise, theirs }
}

type Renewing = Awaited<ReturnType<typeof renewing>>

const ends: [string, (of: Renewing) => void][] = [
  ['its client said bye', ({ client }) => client.control({ type: 'bye' })],
  ['its client closed it', ({ client }) => client.close('enough')],
  ['its connection broke', ({ theirs }) => theirs.terminate()],
  ['its client broke the protocol', ({ client }) => client.control({ type: 'ready', epoch: 'x' })],
  ['the server ended it', ({ session }) => session.end('enough', CLOSE.goingAway)],
  ['the server cut it', ({ session }) => session.destroy('enough')],
  ['it was drained', ({ session }) => session.drain('enough', 0, 1000, { until: Promise.resolve(), elsewhere: false })],
]
const answers: [string, (of: Renewing) => void][] = [
  ['accepted', ({ checked }) => checked.resolve({ ...identity, expiresAt: identity.expiresAt + 3600 })],
  ['refused', ({ checked }) => checked.reject(new TokenRefused('signature', 'the signature is wrong'))],
]

test.each(ends.flatMap(([ended, end]) => answers.map(([told, answer]) => [ended, told, end, answer] as const)))(
  'B2: %s, then its fresh token is %s',
  async (_ended, _told, end, answer) => {
    const renewal = await renewing()
    end(renewal)
    await renewal.closed
    renewal.theirs.terminate()
    for (let i = 0; i < 5; i++) await turn()
    const waiting = vi.getTimerCount()
    answer(renewal)
    for (let i = 0; i < 5; i++) await turn()
    expect([renewal.session.state, vi.getTimerCount()]).toEqual(['closed', waiting])
  },
)

test('a session whose connection has broken takes nothing, and is not called full, before its exchanges are told', async () => {
  const { session, theirs, closed } = await renewing()
  const told = vi.fn()
  void closed.then(told)
  expect([session.usable, session.full, session.heardAt > 0]).toEqual([true, false, true])
  theirs.terminate()
  while (!session.session.closed) await turn()
  expect([session.usable, session.full, session.heardAt, told.mock.calls]).toEqual([false, false, 0, []])
  await closed
})
