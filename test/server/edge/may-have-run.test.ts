/** R7: who sends a request that may have been executed, and is not safe to repeat, is never told to send it again. */
import { expect, test } from 'vitest'
import { ERRORS, type ErrorCode, SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import { answerProblem } from '../../../protocol/http/problem.ts'
import { RESPONSE_START, responseHeadText } from '../../../protocol/wire/bhttp/encode.ts'
import { ANSWER } from '../../../protocol/wire/exchange/answer.ts'
import { REFUSALS, type RefusalCode } from '../../../protocol/wire/exchange/refusal.ts'
import { memoryPair } from '../../../protocol/wire/transport-memory.ts'
import { varintText } from '../../../protocol/wire/varint.ts'
import { RESET_CODES, type Stream } from '../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { deliver } from '../../../server/edge/deliver.ts'
import { Hold } from '../../../server/edge/hold.ts'
import { DEFAULT_HOLD } from '../../../server/limits.ts'
import type { Carrier } from '../../../server/registry.ts'
import { Downstream, post, request } from '../../protocol/wire/exchange/support.ts'

/** What the exchange is told, at either end of its stream. */
interface Ends {
  readonly ours: Stream
  readonly theirs: Stream | undefined
}
type Failure = (ends: Ends) => void

const refusals = Object.keys(REFUSALS) as RefusalCode[]
const FAILURES: Record<string, Failure> = {
  ...Object.fromEntries(
    RESET_CODES.map((code): [string, Failure] => [
      `reset: ${code}`,
      ({ ours, theirs }) => (theirs === undefined ? ours.handler.reset(code) : theirs.reset(code)),
    ]),
  ),
  shed: ({ ours }) => ours.handler.shed!(),
  'the session is lost': ({ ours }) => ours.session.destroy(new SallyportError('session-lost')),
  'our own end is overloaded': ({ ours }) => ours.session.destroy(new SallyportError('overloaded')),
}
const REFUSED: Record<string, Failure> = Object.fromEntries(
  refusals.map(code => [
    `refused: ${code}`,
    ({ theirs }) => theirs!.write(varintText(ANSWER.refused) + varintText(REFUSALS[code])),
  ]),
)

const HALF_HEAD = varintText(ANSWER.message) + RESPONSE_START + responseHeadText(200, ['x', 'y']).slice(0, -2)
const STAGES = ['nothing sent', 'head sent', 'body sent', 'half an answer head'] as const
type Stage = (typeof STAGES)[number]

const turn = () => new Promise(resolve => setImmediate(resolve))

/** The answer to a request that fails at `stage`. */
async function answerTo(method: 'GET' | 'POST', stage: Stage, fail: Failure): Promise<Downstream> {
  const [here, there] = memoryPair()
  const session = createSession(here, { role: 'server' })
  let ours: Stream | undefined
  let theirs: Stream | undefined
  createSession(there, {
    role: 'client',
    onStream: stream => {
      theirs = stream
      stream.handler = { data: chunk => stream.consumed(chunk.length), end() {}, reset() {}, consumed() {} }
    },
  })
  const carrier = {
    id: 's-1',
    instance: 'i-1',
    epoch: 1,
    exchanges: 0,
    hops: 0,
    usable: true,
    open: () => (ours = session.open()),
    released() {},
  } as unknown as Carrier
  const caller = new Downstream()
  const handler = deliver({
    carriers: {
      isExpected: () => false,
      isFull: () => false,
      ask: () => false,
      pick: (_runtime, failed) => (failed === undefined ? carrier : undefined),
    },
    hold: new Hold({ ...DEFAULT_HOLD, holdMs: 0 }),
    replayBudget: new ReplayBudget(20_000, 60_000),
    responseHeadMs: 0,
    tracing: undefined,
    corsOf: () => undefined,
    refuse(refused, response, error) {
      answerProblem(response, refused, error)
      return discarding(response)
    },
    logger: noLogger,
  })
  caller.sink = handler({ ...(method === 'POST' ? post() : request()), runtime: 'demo' }, caller)
  if (stage !== 'nothing sent') while (theirs === undefined) await turn()
  if (method === 'POST' && STAGES.indexOf(stage) >= 2) {
    caller.sink.requestData(Buffer.from('a body'))
    caller.sink.requestEnd([])
    await turn()
  }
  if (stage === 'half an answer head') {
    theirs!.write(HALF_HEAD)
    for (let i = 0; i < 5; i++) await turn()
  }
  fail({ ours: ours!, theirs })
  await caller.over()
  session.destroy(new SallyportError('session-lost'))
  return caller
}

const CASES = [
  ...STAGES.flatMap(stage => Object.keys(FAILURES).map(name => [stage, name] as const)),
  ...refusals.map(code => ['body sent', `refused: ${code}`] as const),
]
/** What failed knows that nothing was executed. */
const UNPROCESSED = /^(reset: refused|refused: (?!already-begun|too-late).*)$/

test.each(CASES)(
  'R7 %s, %s: it must not be repeated, unless nothing of it can have been executed',
  async (stage, name) => {
    const fail = FAILURES[name] ?? REFUSED[name]!
    const [posted, got] = [await answerTo('POST', stage, fail), await answerTo('GET', stage, fail)]
    const [ofPost, ofGet] = [posted, got].map(({ head_ }) => getHeader(head_!.headers, 'sallyport-error') as ErrorCode)
    const mayHaveRun =
      stage === 'half an answer head' || name === 'shed' || !(stage === 'nothing sent' || UNPROCESSED.test(name))
    expect(ERRORS[ofGet!].retryable && mayHaveRun ? 'session-lost' : ofGet).toBe(ofPost)
    if (mayHaveRun) expect(getHeader(posted.head_!.headers, 'retry-after')).toBeUndefined()
  },
)
