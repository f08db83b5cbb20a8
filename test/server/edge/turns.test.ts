/** Requests that wait because another replica refused them: who tries again, and when. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { BODY_UNKNOWN, type HttpRequest, type RequestSink, type ResponseSink } from '../../../protocol/exchange.ts'
import { answerProblem } from '../../../protocol/http/problem.ts'
import { acceptExchange } from '../../../protocol/wire/exchange/accept.ts'
import { memoryPair } from '../../../protocol/wire/transport-memory.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import type { CarrierSource } from '../../../server/edge/carriers.ts'
import { deliver } from '../../../server/edge/deliver.ts'
import { Hold } from '../../../server/edge/hold.ts'
import { DEFAULT_HOLD } from '../../../server/limits.ts'
import type { Carrier } from '../../../server/registry.ts'
import { EXCHANGE } from '../../support/ends.ts'

const WAITING = 9

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const settled = async () => {
  for (let i = 0; i < 20; i++) await new Promise(resolve => setImmediate(resolve))
}

/** Requests that wait, all refused by a replica that behaves differently from then on. */
async function start() {
  let behaviour: 'refuses' | 'accepts' | 'is silent' = 'refuses'
  let cools = false
  let picks = 0
  /** The paths of requests that the other replica was given. */
  const tried: string[] = []
  const [here, there] = memoryPair()
  const session = createSession(here, { role: 'server' })
  createSession(there, {
    role: 'client',
    onStream: stream => {
      if (behaviour === 'is silent') stream.withholdAcknowledgement()
      acceptExchange(stream, (_preamble, { path }, response) => {
        tried.push(path)
        if (behaviour === 'refuses') return 'overloaded'
        if (behaviour === 'accepts') response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
        return discarding(response)
      })
    },
  })
  const hop: Carrier = {
    id: 'far',
    instance: 'a',
    epoch: 1,
    hops: 1,
    callers: undefined,
    usable: true,
    full: false,
    exchanges: 0,
    gave() {},
    open: () => session.open(),
    refused() {
      cools = true
    },
    released() {},
  }
  const carriers: CarrierSource = {
    isExpected: () => true,
    isFull: () => false,
    ask: () => false,
    pick() {
      picks++
      return cools ? undefined : hop
    },
  }
  const hold = new Hold(DEFAULT_HOLD)
  const handle = deliver({
    replayBudget: new ReplayBudget(20_000, 1_000_000),
    hold,
    responseHeadMs: 0,
    tracing: undefined,
    carriers,
    corsOf: () => undefined,
    refuse(refused, response, error) {
      answerProblem(response, refused, error)
      return discarding(response)
    },
    logger: noLogger,
  })
  const callers: RequestSink[] = []
  for (let i = 0; i < WAITING; i++) {
    const request: HttpRequest = { ...EXCHANGE, path: `/${i}`, headers: [], runtime: 'demo' }
    const caller = handle(request, new Proxy({}, { get: () => () => {} }) as ResponseSink)
    caller.requestEnd([])
    callers.push(caller)
    await settled()
  }
  expect(hold.requests).toBe(WAITING)
  return {
    callers,
    /** The paths of those that try when the replica may be tried again. */
    async again(next: typeof behaviour) {
      tried.length = 0
      behaviour = next
      cools = false
      hold.tryFew('demo', carriers)
      await settled()
      return tried
    },
    /** How often a carrier is looked for when others may try, but it refuses. */
    picks() {
      picks = 0
      hold.tryFew('demo', carriers)
      return picks
    },
    cooled() {
      cools = false
    },
    end: () => session.close('the end'),
  }
}

test('while it refuses, the two that have waited longest try each time', async () => {
  const { again, cooled, end } = await start()
  for (let i = 0; i < 3; i++) expect(await again('refuses')).toEqual(['/0', '/1'])
  const tried = await again('refuses')
  cooled()
  vi.advanceTimersByTime(250)
  await settled()
  expect(tried).toEqual(['/0', '/1'])
  end()
})

test('while it rests, not everybody who waits is looked at', async () => {
  const { picks, end } = await start()
  expect(picks()).toBe(1)
  end()
})

test('all go on, in turn, once it accepts', async () => {
  const { again, end } = await start()
  expect(await again('accepts')).toEqual(['/0', '/1', '/2', '/3', '/4', '/5', '/6', '/7', '/8'])
  end()
})

test('nobody waits long for one that is not answered', async () => {
  const { again, end } = await start()
  const tried = await again('is silent')
  expect(tried).toEqual(['/0', '/1'])
  vi.advanceTimersByTime(250)
  await settled()
  expect(tried).toEqual(['/0', '/1', '/2', '/3', '/4', '/5'])
  end()
})

test('one whose caller leaves passes its turn on', async () => {
  const { again, callers, end } = await start()
  const tried = await again('is silent')
  callers[0]!.requestAbort(new SallyportError('session-lost'))
  await settled()
  expect(tried).toEqual(['/0', '/1', '/2', '/3'])
  end()
})
