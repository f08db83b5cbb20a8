/** One webhook at the edge, between ends that a test plays. */
import { expect, onTestFinished, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, ResponseSink } from '../../../protocol/exchange.ts'
import { Capture } from '../../../server/inbox/capture.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { INBOX } from '../../../server/limits.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { until } from '../../support/until.ts'
import { answer } from '../fixture.ts'
import { RULE } from './fixture.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'

function openInbox(): Inbox {
  const inbox = new Inbox({
    ...{ store: new MemoryInboxStore(new MemoryDisk()), limits: defaultsOf(INBOX), plaintext: true, logger: noLogger },
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
