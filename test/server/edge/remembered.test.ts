/** R7: how long an unsafe request waits for the instance that may have begun it. */
import { afterEach, expect, test, vi } from 'vitest'
import { discarding } from '../../../protocol/base/guard.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { acceptExchange } from '../../../protocol/wire/exchange/accept.ts'
import { memoryPair } from '../../../protocol/wire/transport-memory.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { deliver } from '../../../server/edge/deliver.ts'
import { Hold } from '../../../server/edge/hold.ts'
import { DEFAULT_HOLD } from '../../../server/limits.ts'
import type { Carrier } from '../../../server/registry.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { until } from '../../support/until.ts'

afterEach(() => void vi.restoreAllMocks())

/** Sends a request to a session that is lost once it has it, after this time. No other session comes. */
async function lostAfter(ms: number, method: string) {
  const [here, there] = memoryPair()
  const session = createSession(here, { role: 'server' })
  let begun = false
  createSession(there, {
    role: 'client',
    onStream: stream =>
      acceptExchange(stream, (_preamble, _request, response) => {
        begun = true
        return discarding(response)
      }),
  })
  const carrier = {
    ...{ id: 's', instance: 'one', epoch: 1, hops: 0, callers: undefined, usable: true, full: false, exchanges: 0 },
    ...{ gave() {}, released() {}, open: () => session.open() },
  } satisfies Carrier
  const hold = new Hold({ ...DEFAULT_HOLD, holdMs: 600_000 })
  const failures: string[] = []
  const handler = deliver({
    carriers: {
      pick: () => (session.closed ? undefined : carrier),
      ...{ isFull: () => false, isExpected: () => true, ask: () => false },
    },
    ...{ hold, replayBudget: new ReplayBudget(20_000, 1_000_000), responseHeadMs: 0, tracing: undefined },
    ...{ corsOf: () => undefined, logger: noLogger },
    refuse(_request, response, error) {
      failures.push(error.reason)
      return discarding(response)
    },
  })
  const sink = handler({ ...EXCHANGE, method, runtime: 'demo' }, DEAF)
  sink.requestEnd([])
  await until(() => begun)
  const now = performance.now.bind(performance)
  vi.spyOn(performance, 'now').mockImplementation(() => now() + ms)
  there.terminate()
  await until(() => session.closed && session.streams === 0)
  return { failures, hold, close: () => hold.close() }
}

test('a POST waits no longer than the instance remembers it, however long requests may wait', async () => {
  const { failures, hold } = await lostAfter(44_000, 'POST')
  expect([hold.requests, failures]).toEqual([1, []])
  await until(() => failures.length > 0)
  expect(failures).toEqual(['session-lost'])
})

test('a POST whose session was lost later does not wait at all', async () => {
  expect((await lostAfter(45_000, 'POST')).failures).toEqual(['session-lost'])
})

test('a GET waits', async () => {
  const { failures, hold, close } = await lostAfter(600_000, 'GET')
  expect([hold.requests, failures]).toEqual([1, []])
  close()
})
