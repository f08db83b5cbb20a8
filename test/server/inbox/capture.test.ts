/** One webhook at the edge, between ends that a test plays. */
import { createHmac } from 'node:crypto'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler, type ResponseHead, type ResponseSink } from '../../../protocol/exchange.ts'
import { getHeader, hasHeader } from '../../../protocol/http/headers.ts'
import { Capture } from '../../../server/inbox/capture.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { INBOX } from '../../../server/limits.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { until } from '../../support/until.ts'
import { answer, reading } from '../fixture.ts'
import { RULE } from './fixture.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'

function openInbox(changed: object = {}, store = new MemoryInboxStore(new MemoryDisk())): Inbox {
  const limits = { ...defaultsOf(INBOX), ...changed }
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

/** An inbox that is to store a webhook after 20 ms, since its receiver says nothing, and refuses it. */
function refusing(inbox: Inbox) {
  const requestAbort = vi.fn()
  const receive: Handler = (_request, response) => ({ ...discarding(response), requestAbort })
  const { promise: told, resolve } = Promise.withResolvers<string>()
  inbox.start(receive, (_request, _response, { reason }) => {
    resolve(reason)
    return discarding(DEAF)
  })
  inbox.rules.publish('demo', [{ ...RULE, answerWithinMs: 20 }], undefined)
  return { told, requestAbort, send: () => inbox.layer(receive)(REQUEST, DEAF).requestEnd([]) }
}

test('P1 if a step of ours throws, the sender and the receiver hear it', async () => {
  vi.spyOn(Capture.prototype, 'late').mockImplementationOnce(() => {
    throw new Error('thrown on purpose')
  })
  const { told, requestAbort, send } = refusing(openInbox())
  send()
  expect(await told).toBe('internal')
  expect(requestAbort).toHaveBeenCalledOnce()
})

test('if it cannot be stored, nothing is left of its attempt', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const { told, requestAbort, send } = refusing(openInbox({ messagesPerRuntime: 0 }))
  const timers = vi.getTimerCount()
  send()
  expect(vi.getTimerCount()).toBe(timers + 1)
  await vi.advanceTimersByTimeAsync(20)
  expect(await told).toBe('inbox-full')
  expect(requestAbort).toHaveBeenCalledOnce()
  expect(vi.getTimerCount()).toBe(timers)
})

const KIB = 1024

describe('a long webhook', () => {
  const BODY_KIB = 2500

  /** Sends it as fast as it may to a receiver that takes `kib` every 10 ms. Its answer is to come within 800 ms. */
  async function sending(kib: number, hasLength: boolean, response: Partial<ResponseSink> = {}, rule = {}) {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const inbox = openInbox()
    const attempts: (string | undefined)[] = []
    /** Its sender. */
    const told: string[] = []
    const aborted: string[] = []
    let untaken = 0
    let ms = 0
    let toReceiver: ResponseSink | undefined
    const receive: Handler = (request, response) => {
      if (hasHeader(request.headers, 'sallyport-inbox-id')) {
        attempts.push(getHeader(request.headers, 'sallyport-inbox-attempt'))
        return reading(response, () => answer(response, 200, ''))
      }
      toReceiver = response
      return {
        ...discarding(response),
        requestData({ length }) {
          untaken += length / KIB
        },
        requestAbort: ({ reason }) => void aborted.push(`${reason} after ${ms} ms`),
      }
    }
    inbox.start(receive, (_request, response, { reason }) => {
      told.push(reason)
      return discarding(response)
    })
    inbox.rules.publish('demo', [{ ...RULE, answerWithinMs: 800, ...rule }], undefined)
    let window = 256
    let left = BODY_KIB
    let isSent = false
    const bodyBytes = hasLength ? BODY_KIB * KIB : BODY_UNKNOWN
    const sink = inbox.layer(receive)(
      { ...REQUEST, headers: ['expect', '100-continue', 'x-hub-signature-256', `sha256=${'0'.repeat(64)}`], bodyBytes },
      {
        ...DEAF,
        responseHead: ({ status }) => told.push(`${status}`),
        ...response,
        requestConsumed(bytes) {
          window += bytes / KIB
        },
      },
    )
    const pass = async (untilMs: number) => {
      for (; ms < untilMs; ms += 10) {
        for (; window >= 1 && left > 0; window--, left--) sink.requestData(Buffer.alloc(KIB))
        if (left === 0 && !isSent) {
          isSent = true
          sink.requestEnd([])
        }
        const taken = aborted.length > 0 ? 0 : Math.min(kib, untaken)
        untaken -= taken
        if (taken > 0) toReceiver!.requestConsumed(taken * KIB)
        await vi.advanceTimersByTimeAsync(10)
      }
    }
    return { inbox, sink, told, aborted, attempts, pass, isSent: () => isSent }
  }

  test.each<[kib: number, length: string, leftAfterMs: number]>([
    [0, 'known', 400],
    [1, 'known', 400],
    [6, 'known', 400],
    [20, 'known', 400],
    [26, 'known', 800],
    [0, 'not known', 800],
    [10, 'not known', 800],
    [26, 'not known', 800],
  ])(
    'whose receiver takes %d KiB every 10 ms, and whose length is %s, is only stored after %d ms, and then delivered',
    async (kib, length, leftAfterMs) => {
      const { inbox, told, aborted, attempts, pass, isSent } = await sending(kib, length === 'known')
      await pass(900)
      expect([isSent(), told, aborted]).toEqual([true, ['202'], [`upstream-timeout after ${leftAfterMs - 10} ms`]])
      // It is as if it had never been tried.
      await pass(910)
      expect([attempts, inbox.stats().attempts.failed]).toEqual([['1'], 0])
      expect(inbox.stats()).toMatchObject({ lanes: 0, bufferBytes: 0, accepted: { slow: 1 } })
    },
  )

  test.each(['known', 'not known'])(
    'whose receiver has read all of it in time, and whose length is %s, stays with it',
    async length => {
      const { inbox, told, aborted, attempts, pass } = await sending(30, length === 'known')
      await pass(900)
      expect([told, aborted]).toEqual([['202'], []])
      expect([attempts, inbox.stats().messages.waiting]).toEqual([[], 1])
    },
  )

  test('whose sender waits for a 100 gets it if its receiver says nothing', async () => {
    const responseInformational = vi.fn()
    const { inbox, sink } = await sending(0, true, { responseInformational })
    await vi.advanceTimersByTimeAsync(400)
    expect(responseInformational).toHaveBeenCalledExactlyOnceWith(100, [])
    sink.requestAbort(new SallyportError('cancelled'))
    expect(inbox.stats()).toMatchObject({ lanes: 0, bufferBytes: 0 })
  })

  test('that its sender does not complete is not stored', async () => {
    const { inbox, sink, aborted, pass } = await sending(1, true)
    await pass(400)
    expect(aborted).toHaveLength(1)
    sink.requestAbort(new SallyportError('cancelled'))
    await pass(900)
    expect(aborted).toHaveLength(1)
    expect(inbox.stats()).toMatchObject({ lanes: 0, bufferBytes: 0, accepted: { slow: 0 }, messages: { waiting: 0 } })
  })

  test('whose signature turns out to be wrong when it has only been stored is refused', async () => {
    const secrets = [Buffer.from('s3cret').toString('base64')]
    const { inbox, told, aborted, pass } = await sending(1, true, {}, { verify: { scheme: 'github', secrets } })
    await pass(900)
    expect([told, aborted.length]).toEqual([['webhook-signature'], 1])
    expect(inbox.stats()).toMatchObject({ lanes: 0, bufferBytes: 0, messages: { waiting: 0 } })
  })
})

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

  test.each<[how: string, end: (response: ResponseSink) => void, delivered: number]>([
    ['is complete', response => response.responseEnd([]), 1],
    ['breaks off', response => response.responseAbort(new SallyportError('upstream-broken')), 0],
  ])('counts as delivered if it is a 200 before all is read only when its answer %s', async (_how, end, delivered) => {
    const inbox = openInbox()
    const [receiver] = await sent(inbox, 1)
    const { response } = receiver!
    response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    response.requestConsumed(20 * KIB)
    expect(inbox.stats().attempts).toMatchObject({ delivered: 0, failed: 0 })
    end(response)
    await until(() => inbox.stats().attempts.failed === 1 - delivered)
    await until(() => inbox.stats().attempts.delivered === delivered)
    expect(receiver!.aborted).toBeUndefined()
  })

  test('is given up if there is no memory for it, and its webhook is delivered later', async () => {
    const inbox = openInbox({ bufferBytes: 1024 * KIB })
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

describe('when others have used up the memory of a runtime', () => {
  const secret = 's3cret'

  /** Eight others have sent the beginning of something. Returns what sends a webhook of 60 KiB that is valid. */
  function crowd() {
    const inbox = openInbox({ bufferBytes: 1024 * KIB })
    inbox.start(
      () => expect.unreachable(),
      (_request, response) => {
        response.responseHead({ status: 503, headers: [], bodyBytes: 0 })
        return discarding(response)
      },
    )
    const secrets = [Buffer.from(secret).toString('base64')]
    const rule = { ...RULE, mode: 'always' as const, lane: 'none' as const }
    const rules = [
      { ...rule, verify: { scheme: 'github' as const, secrets } },
      { ...rule, route: 'tokens', path: '/tokens', verify: { scheme: 'gitlab' as const, secrets } },
    ]
    for (const runtime of ['demo', 'other']) inbox.rules.publish(runtime, rules, undefined)
    const begin = (address: string, headers: string[], response: ResponseSink, to = {}) =>
      inbox.layer(() => expect.unreachable())(
        { ...REQUEST, ...to, headers, caller: { ...EXCHANGE.caller!, address } },
        response,
      )
    const send = async (address: string, to = {}) => {
      const { promise, resolve } = Promise.withResolvers<number>()
      const body = Buffer.alloc(60 * KIB)
      const signature = `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`
      const response = { ...DEAF, responseHead: ({ status }: ResponseHead) => resolve(status) }
      const sink = begin(address, ['x-hub-signature-256', signature], response, to)
      for (let at = 0; at < body.length; at += 20 * KIB) sink.requestData(body.subarray(at, at + 20 * KIB))
      sink.requestEnd([])
      return await promise
    }
    const sendToken = (address: string, token: string) =>
      begin(address, ['x-gitlab-token', token], DEAF, { path: '/tokens' }).requestEnd([])
    const forged = ['x-hub-signature-256', `sha256=${'0'.repeat(64)}`]
    const fill = () => {
      const sinks = Array.from({ length: 8 }, (_, i) => begin(`2001:db8:${i}::1`, forged, DEAF))
      for (const sink of sinks) sink.requestData(Buffer.alloc(64 * KIB))
      return () => {
        for (const sink of sinks) sink.requestAbort(new SallyportError('cancelled'))
      }
    }
    return { inbox, send, sendToken, fill }
  }

  test.each<[sender: string, before: (own: ReturnType<typeof crowd>, address: string) => unknown, status: number]>([
    ['one that has sent a valid one', ({ send }, address) => send(address), 202],
    ['one that has sent a valid token', ({ sendToken }, address) => sendToken(address, secret), 202],
    ['one that has sent a wrong token', ({ sendToken }, address) => sendToken(address, 'wrong'), 503],
    [
      'one that has sent a valid one to another runtime',
      ({ send }, address) => send(address, { runtime: 'other' }),
      503,
    ],
    ['a new one', () => {}, 503],
  ])('%s', async (_sender, before, status) => {
    const { inbox, ...others } = crowd()
    await before({ inbox, ...others }, '192.0.2.1')
    await until(() => inbox.stats().bufferBytes === 0)
    const leave = others.fill()
    for (let n = 0; n < 20; n++) expect(await others.send('192.0.2.1')).toBe(status)
    expect(inbox.stats().bufferBytes).toBeLessThan(600 * KIB)
    leave()
    await until(() => inbox.stats().bufferBytes === 0)
  })
})

test('the heads of webhooks that are being stored count', async () => {
  const store = new MemoryInboxStore(new MemoryDisk())
  const inbox = openInbox({ bufferBytes: 1024 * KIB }, store)
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
