/** Exchanges over sessions that refuse, die, break off or answer early, in any order: the invariants. */

import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { ReplayBudget } from '../../protocol/base/replay-budget.ts'
import {
  BODY_UNKNOWN,
  type ExchangeRecord,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { answerProblem } from '../../protocol/http/problem.ts'
import { record } from '../../protocol/http/record.ts'
import { acceptExchange, type ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import type { RuntimeSession } from '../../server/control/runtime-session.ts'
import { type DeliverOptions, deliver } from '../../server/edge/deliver.ts'
import { Hold } from '../../server/edge/hold.ts'
import { Replay } from '../../server/edge/replay.ts'
import { DEFAULT_HOLD } from '../../server/limits.ts'
import { EXCHANGE } from '../support/ends.ts'
import { Spans } from '../support/spans.ts'
import { sendingBack } from './fixture.ts'

const BEHAVIOURS = ['echo', 'takes-none', 'refuse', 'lose', 'loseLater', 'break', 'early', 'already-begun'] as const
type Behaviour = (typeof BEHAVIOURS)[number]

interface Plan {
  readonly sessions: readonly { readonly behaviour: Behaviour; readonly instance: string }[]
  readonly method: 'GET' | 'POST'
  readonly chunks: readonly number[]
  readonly leaves: boolean
  /** How much each of many others keeps for a moment while a session is tried. */
  readonly others: number
}

/** What the client's end of a session does with an exchange. */
function behave(behaviour: Behaviour, die: () => void, began: () => void): ExchangeHandler {
  return (_preamble, request, response) => {
    if (behaviour === 'refuse') return 'draining'
    if (behaviour === 'already-begun') return 'already-begun'
    began()
    if (behaviour === 'lose') {
      die()
      return discarding(response)
    }
    if (behaviour === 'early') {
      response.responseHead({ status: 413, headers: ['content-length', '0'], bodyBytes: 0 })
      response.responseEnd([])
      return discarding(response)
    }
    response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    if (behaviour === 'break') {
      response.responseData(Buffer.from(request.method))
      response.responseAbort(new SallyportError('upstream-broken'))
      return discarding(response)
    }
    if (behaviour === 'loseLater') setImmediate(die)
    return sendingBack(response)
  }
}

/** As much of a session as an exchange needs, over a pair in memory. */
function fakeSession(behaviour: Behaviour, instance: string, began: () => void, tried: () => void) {
  const [here, there] = memoryPair()
  const session = createSession(here, { role: 'server' })
  const die = () => there.terminate()
  createSession(there, {
    role: 'client',
    onStream: stream => acceptExchange(stream, behave(behaviour, die, began)),
  })
  const fake = {
    id: behaviour,
    instance,
    epoch: 1,
    callers: undefined,
    exchanges: 0,
    hops: 0,
    open() {
      tried()
      if (behaviour === 'takes-none') throw new SallyportError('overloaded')
      return session.open()
    },
    gave() {},
    released() {
      fake.exchanges--
    },
    session,
  }
  return fake
}

/** The caller's end: checks the order of its events. */
class Caller implements ResponseSink {
  heads: number[] = []
  bytes = 0
  credit = 0
  ends = 0
  aborts = 0
  sink: RequestSink | undefined
  readonly over = Promise.withResolvers<void>()

  get isOver(): boolean {
    return this.ends + this.aborts > 0
  }

  responseInformational(): void {}

  responseHead(response: { status: number }): void {
    expect(this.isOver).toBe(false)
    this.heads.push(response.status)
  }

  responseData(chunk: Uint8Array): void {
    expect(this.heads).toHaveLength(1)
    expect(this.isOver).toBe(false)
    this.bytes += chunk.length
    this.sink?.responseConsumed(chunk.length)
  }

  responseEnd(): void {
    expect(this.heads).toHaveLength(1)
    this.ends++
    this.over.resolve()
  }

  responseAbort(): void {
    this.aborts++
    this.over.resolve()
  }

  requestConsumed(bytes: number): void {
    this.credit += bytes
  }
}

const turn = () => new Promise(resolve => setImmediate(resolve))

async function run(plan: Plan): Promise<void> {
  const records: ExchangeRecord[] = []
  const defects: unknown[] = []
  const begun = new Set<string>()
  const replayBudget = new ReplayBudget(20_000, 60_000)
  const tried = () => {
    const others = Array.from({ length: 60 }, (_, i) => new Replay(replayBudget, 'demo', `192.0.2.${i}`))
    for (const other of others) other.add(new Uint8Array(plan.others))
    for (const other of others) other.release()
  }
  const sessions = plan.sessions.map(one =>
    fakeSession(one.behaviour, one.instance, () => begun.add(one.instance), tried),
  )
  const options: DeliverOptions = {
    replayBudget,
    hold: new Hold({ ...DEFAULT_HOLD, holdMs: 0 }),
    responseHeadMs: 0,
    tracing: undefined,
    carriers: {
      isExpected: () => true,
      isFull: () => false,
      ask: () => false,
      pick: (_runtime, not, instance) =>
        sessions.find(
          one =>
            one !== (not as unknown) && !one.session.closed && (instance === undefined || one.instance === instance),
        ) as unknown as RuntimeSession | undefined,
    },
    corsOf: () => undefined,
    refuse(refused, response, error) {
      answerProblem(response, refused, error)
      return discarding(response)
    },
    logger: { ...noLogger, error: fields => defects.push(fields) },
  }
  const caller = new Caller()
  const request: HttpRequest = {
    ...EXCHANGE,
    method: plan.method,
    path: '/',
    headers: [],
    bodyBytes: BODY_UNKNOWN,
    runtime: 'demo',
  }
  const spans = new Spans()
  request.span = spans.tracer.start('whole', 'server', undefined)
  const exchange = record(told => records.push(told))(deliver(options))(request, caller)
  caller.sink = exchange
  let sent = 0
  for (const size of plan.chunks) {
    sent += size
    exchange.requestData(Buffer.alloc(size, 'x'))
    if (size % 2 === 0) await turn()
  }
  if (plan.leaves) {
    exchange.requestAbort(new SallyportError('cancelled'))
  } else {
    exchange.requestEnd([])
    await caller.over.promise
  }
  for (let i = 0; i < 20; i++) await turn()
  expect(records).toHaveLength(1)
  // The test's own window.
  expect(spans.open).toBe(1)
  expect(spans.finished.filter(({ failed }) => !failed).length).toBeLessThanOrEqual(1)
  expect(caller.ends + caller.aborts).toBeLessThanOrEqual(1)
  expect(caller.credit).toBeLessThanOrEqual(sent)
  expect(defects).toEqual([])
  expect(replayBudget.used).toBe(0)
  for (const session of sessions) expect(session.exchanges).toBe(0)
  if (!plan.leaves) {
    expect(caller.heads).toHaveLength(1)
    expect(records[0]!.status).toBe(caller.heads[0])
    expect(records[0]!.cut).toBe(caller.aborts === 1)
    if (caller.ends === 1) expect(caller.credit).toBe(sent)
    if (caller.ends === 1 && caller.heads[0] === 200) expect(caller.bytes).toBe(sent)
  }
  // Only the same instance may be asked again about a POST that it may have begun: no other one ever begins it.
  if (plan.method === 'POST') expect(begun.size).toBeLessThanOrEqual(1)
  for (const session of sessions) session.session.destroy(new SallyportError('session-lost'))
}

test('one answer or one cut, all credit returned, nothing left behind', { tags: ['slow'] }, async () => {
  const plan: fc.Arbitrary<Plan> = fc.record({
    sessions: fc.array(
      fc.record({ behaviour: fc.constantFrom(...BEHAVIOURS), instance: fc.constantFrom('a', 'b', 'c') }),
      { maxLength: 4 },
    ),
    method: fc.constantFrom('GET', 'POST'),
    chunks: fc.array(fc.integer({ min: 1, max: 20_000 }), { maxLength: 5 }),
    leaves: fc.boolean(),
    others: fc.constantFrom(0, 1000),
  })
  await fc.assert(fc.asyncProperty(plan, run), { numRuns: 1000 })
})
