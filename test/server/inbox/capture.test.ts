/** One webhook at the edge, between ends that a test plays. */
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, ResponseSink } from '../../../protocol/exchange.ts'
import { hasHeader } from '../../../protocol/http/headers.ts'
import { Capture } from '../../../server/inbox/capture.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { INBOX } from '../../../server/limits.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { until } from '../../support/until.ts'
import { answer, reading } from '../fixture.ts'
import { RULE } from './fixture.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'

function openInbox(bufferBytes = defaultsOf(INBOX).bufferBytes, store = new MemoryInboxStore(new MemoryDisk())): Inbox {
  const limits = { ...defaultsOf(INBOX), bufferBytes }
  const inbox = new Inbox({
    ...{ store, limits, plaintext: true, logger: noLogger },
    ...{ now: Date.now, isLive: () => true, isHere: () => true, isOvertaken: () => false, look: () => {} },
  })
  onTestFinished(() => inbox.close())
  return inbox
}

const REQUEST = { ...EXCHANGE, method: 'POST', path: '/webhooks/a', runtime: 'demo' }

test('if the 202 cannot be sent, the attempt under way goes on, and its lane with it', async () => {
  const inbox = openInbox()
  let receiver: ResponseSink | undefined
  const receive: Handler = (_request, response) => {
    receiver = response
    return {
      ...discarding(response),
      requestAbort() {
        receiver = undefined
      },
    }
  }
  inbox.start(receive, () => expect.unreachable())
  inbox.rules.publish('demo', [{ ...RULE, answerWithinMs: 20 }], undefined)
  const { promise: told, resolve } = Promise.withResolvers<number>()
  const sink = inbox.layer(receive)(REQUEST, {
    ...DEAF,
    responseHead({ status }) {
      sink.requestAbort(new SallyportError('upstream-broken'))
      resolve(status)
    },
  })
  sink.requestEnd([])
  expect(await told).toBe(202)
  expect(receiver).toBeDefined()
  answer(receiver!, 200, '')
  await until(() => inbox.stats().lanes === 0)
  expect(inbox.stats().messages).toEqual({ waiting: 0, dead: 0, delivered: 1 })
})

test('P1 if a step of ours throws, the sender and the receiver hear it', async () => {
  vi.spyOn(Capture.prototype, 'late').mockImplementationOnce(() => {
    throw new Error('thrown on purpose')
  })
  const inbox = openInbox()
  const requestAbort = vi.fn()
  const receive: Handler = (_request, response) => ({ ...discarding(response), requestAbort })
  const { promise: told, resolve } = Promise.withResolvers<string>()
  inbox.start(receive, (_request, _response, { reason }) => {
    resolve(reason)
    return discarding(DEAF)
  })
  inbox.rules.publish('demo', [{ ...RULE, answerWithinMs: 20 }], undefined)
  inbox.layer(receive)(REQUEST, DEAF).requestEnd([])
  expect(await told).toBe('internal')
  expect(requestAbort).toHaveBeenCalledOnce()
})

const KIB = 1024
/** One whose head takes 10 KiB. */
const LONG = { ...REQUEST, headers: ['x-long', 'x'.repeat(10 * KIB)] }

describe('an attempt that goes on after the 202', () => {
  /** Sends webhooks of 20 KiB, each in its own lane, to a receiver that takes nothing at first, and everything from the inbox. */
  async function sent(inbox: Inbox, webhooks: number) {
    const receivers: { response: ResponseSink; aborted?: string }[] = []
    const receive: Handler = (request, response) => {
      if (hasHeader(request.headers, 'sallyport-inbox-id')) return reading(response, () => answer(response, 200, ''))
      const receiver: (typeof receivers)[number] = { response }
      receivers.push(receiver)
      const requestAbort = ({ reason }: SallyportError) => (receiver.aborted = reason)
      return { ...discarding(response), requestData() {}, requestAbort }
    }
    inbox.start(receive, () => expect.unreachable())
    inbox.rules.publish('demo', [{ ...RULE, lane: 'none', answerWithinMs: 20 }], undefined)
    for (let n = 0; n < webhooks; n++) {
      const { promise: answered, resolve } = Promise.withResolvers<void>()
      const sink = inbox.layer(receive)(LONG, { ...DEAF, responseEnd: () => resolve() })
      sink.requestData(Buffer.alloc(20 * KIB))
      sink.requestEnd([])
      await answered
    }
    return receivers
  }

  test.each<[how: string, end: (response: ResponseSink) => void]>([
    ['its receiver answers', response => answer(response, 200, '')],
    ['it fails', response => response.responseAbort(new SallyportError('upstream-broken'))],
    [
      'the rest of its answer does not come',
      response => response.responseHead({ status: 503, headers: [], bodyBytes: -1 }),
    ],
  ])('counts until %s', async (_how, end) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const inbox = openInbox()
    const sending = sent(inbox, 1)
    await vi.advanceTimersByTimeAsync(20)
    const [receiver] = await sending
    const { response } = receiver!
    expect(inbox.stats().bufferBytes).toBeGreaterThan(30 * KIB)
    response.requestConsumed(15 * KIB)
    expect(inbox.stats().bufferBytes).toBeGreaterThan(15 * KIB)
    expect(inbox.stats().bufferBytes).toBeLessThan(25 * KIB)
    end(response)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(inbox.stats().bufferBytes).toBe(0)
  })

  test('is given up if there is no memory for it, and its webhook is delivered later', async () => {
    const inbox = openInbox(1024 * KIB)
    const receivers = await sent(inbox, 20)
    const givenUp = receivers.filter(({ aborted }) => aborted === 'upstream-timeout')
    expect(givenUp.length).toBeGreaterThan(5)
    expect(givenUp.length).toBeLessThan(15)
    expect(inbox.stats().bufferBytes).toBeLessThan(512 * KIB)
    for (const { response, aborted } of receivers) if (aborted === undefined) answer(response, 200, '')
    await until(() => inbox.stats().messages.delivered === 20)
    expect(inbox.stats().bufferBytes).toBe(0)
  })
})

test('the heads of webhooks that are being stored count', async () => {
  const store = new MemoryInboxStore(new MemoryDisk())
  const inbox = openInbox(1024 * KIB, store)
  const refused: string[] = []
  inbox.start(
    () => expect.unreachable(),
    (_request, response, { reason }) => {
      refused.push(reason)
      return discarding(response)
    },
  )
  inbox.rules.publish('demo', [{ ...RULE, mode: 'always', lane: 'none' }], undefined)
  // Nothing is stored any more, and nothing fails.
  store.kill()
  for (let n = 0; n < 40; n++)
    inbox
      .layer(() => expect.unreachable())(LONG, DEAF)
      .requestEnd([])
  expect(refused.length).toBeGreaterThan(15)
  expect(refused.length).toBeLessThan(30)
  expect(new Set(refused)).toEqual(new Set(['inbox-full']))
  expect(inbox.stats().bufferBytes).toBeGreaterThan(200 * KIB)
})
