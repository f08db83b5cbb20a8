/** The layer that opens what a server kept sealed, in front of a test's target, and a server that lies. */
import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { unsealing } from '../../client/unseal.ts'
import { collectGarbage } from '../../load-tests/lib/garbage.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler, type ResponseSink } from '../../protocol/exchange.ts'
import { reportedError } from '../../protocol/http/problem.ts'
import type { Layer } from '../../protocol/layer.ts'
import { newPrivateKey, publicBytes } from '../../protocol/sealing/hpke.ts'
import { InboxKeys, keyIdOf, partAad, Sealers, sealerFor } from '../../protocol/sealing/sealed-webhook.ts'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createSigner } from '../../protocol/webhook/sign.ts'
import { createVerifier } from '../../protocol/webhook/verify.ts'
import { BodyRoom } from '../../router/handler/room.ts'
import { verifying } from '../../router/handler/verified.ts'
import { EXCHANGE, ends } from '../support/ends.ts'

const KEY = newPrivateKey()
const KEYS = new InboxKeys([KEY])
const IDENTITY = { runtime: 'demo', id: 'w-1', lane: 'l', received: 1_800_000_000_000 }
/** Sealers of both forms; the second one's is that of the third webhook. */
const FORMS = {
  first: () => sealerFor(publicBytes(KEY)),
  second: () => {
    const sealers = new Sealers(publicBytes(KEY), 3)
    return [1, 2, 3].map(() => sealers.take()!).at(-1)!
  },
}
const HEAD = {
  ...{ method: 'POST', authority: 'demo.example', path: '/hook', headers: ['x-a', '1'], trailers: [] as string[] },
  caller: { address: '192.0.2.7', scheme: 'https', host: 'demo.example' },
  ...{ requestId: 'r-1', parts: 1, bodyBytes: 4 },
}

interface More {
  readonly step?: number
  readonly keys?: InboxKeys | undefined
  readonly form?: keyof typeof FORMS
  /** Fields of the delivery that differ from what the server wrote, by their meaning. */
  readonly changed?: Record<string, (was: string) => string>
  readonly runtime?: string
  /** What the next layer answers before it has the body. */
  readonly answered?: (response: ResponseSink) => void
  /** The layer behind, in front of the target. */
  readonly behind?: Layer
  /** How much may be sent beyond what was credited. */
  readonly window?: number
}

/** Sends a sealed delivery, `step` bytes at a time. */
function deliver(head: object, parts: readonly string[], more: More = {}) {
  const {
    step = 7,
    keys,
    form = 'second',
    changed = {},
    runtime = 'demo',
    answered,
    behind = (next: Handler) => next,
    window = Number.POSITIVE_INFINITY,
  } = { keys: KEYS, ...more }
  const sealer = FORMS[form]()
  const texts = [Buffer.from(JSON.stringify({ ...HEAD, ...head })), ...parts.map(part => Buffer.from(part))]
  const body = Buffer.concat(
    texts.flatMap((text, n) => {
      const sealed = sealer.seal(n, partAad(IDENTITY, n), text)
      const length = Buffer.alloc(4)
      length.writeUInt32BE(sealed.length)
      return [length, sealed]
    }),
  )
  const both = ends()
  const codes: (string | undefined)[] = []
  const front = {
    ...both.front,
    responseHead: ({ headers }: { headers: string[] }) => void codes.push(reportedError(headers)),
  }
  const headers = [
    ...['sallyport-inbox-id', IDENTITY.id, 'sallyport-inbox-received', new Date(IDENTITY.received).toISOString()],
    ...['sallyport-inbox-key', keyIdOf(publicBytes(KEY)), 'sallyport-inbox-lane', IDENTITY.lane],
    ...['sallyport-inbox-enc', sealer.enc],
  ]
  for (const [name, change] of Object.entries(changed)) {
    const at = headers.indexOf(name) + 1
    headers[at] = change(headers[at]!)
  }
  const request = { ...EXCHANGE, method: 'POST', path: '/', headers, bodyBytes: body.length, runtime }
  const next: Handler = (request, response) => {
    const back = both.next(request, response)
    answered?.(response)
    return back
  }
  const sink = unsealing(keys, noLogger)(behind(next))(request, front)
  const credited = () =>
    both.events.reduce((sum, event) => sum + (event.startsWith('requestConsumed') ? Number(event.slice(16)) : 0), 0)
  let at = 0
  for (; at < body.length && at + step - credited() <= window; at += step)
    sink.requestData(body.subarray(at, at + step))
  if (at >= body.length) sink.requestEnd([])
  return { ...both, request: both.request, response: both.response, code: codes[0], bytes: body.length }
}

test.each([1, 7, 100, 10_000])('it is passed on as it arrived, read %d bytes at a time', step => {
  const { request, events } = deliver({}, ['body'], { step })
  expect(request).toMatchObject({ method: 'POST', path: '/hook', requestId: 'r-1', bodyBytes: 4, caller: HEAD.caller })
  expect(request!.headers).toEqual([
    ...['x-a', '1', 'sallyport-inbox-id', 'w-1', 'sallyport-inbox-received', '2027-01-15T08:00:00.000Z'],
    ...['content-length', '4'],
  ])
  expect(events).toEqual(expect.arrayContaining(['requestData 4', 'requestEnd']))
})

test.each(['first', 'second'] as const)('the %s form is passed on as it arrived', form => {
  const { request, events } = deliver({}, ['body'], { form })
  expect(request).toMatchObject({ path: '/hook', bodyBytes: 4 })
  expect(events).toEqual(expect.arrayContaining(['requestData 4', 'requestEnd']))
})

const nextDigit = (text: string) => text.replace(/.$/, last => String((Number(last) + 1) % 10))
const CHANGES: [what: string, more: More][] = [
  ['another runtime', { runtime: 'other' }],
  ['another id', { changed: { 'sallyport-inbox-id': () => 'w-2' } }],
  ['another lane', { changed: { 'sallyport-inbox-lane': () => 'm' } }],
  ['another time', { changed: { 'sallyport-inbox-received': () => new Date(IDENTITY.received + 1).toISOString() } }],
  ['the encapsulated key of another webhook', { changed: { 'sallyport-inbox-enc': () => FORMS.second().enc } }],
  [
    'the encapsulated key of another webhook, in the first form',
    { changed: { 'sallyport-inbox-enc': () => FORMS.first().enc } },
  ],
  ['no encapsulated key', { changed: { 'sallyport-inbox-enc': () => '' } }],
  ['a truncated encapsulated key', { changed: { 'sallyport-inbox-enc': was => was.slice(1) } }],
  ['a point of small order', { changed: { 'sallyport-inbox-enc': was => was.replace(/^[\w-]{43}/, 'A'.repeat(43)) } }],
]

test.each([
  ...(['first', 'second'] as const).flatMap(form => CHANGES.map(([what, more]) => [form, what, more] as const)),
  ['second', 'the number of the one behind it', { changed: { 'sallyport-inbox-enc': nextDigit } }],
  ['second', 'the other form', { changed: { 'sallyport-inbox-enc': (was: string) => was.replace(/\..*/, '') } }],
  ['first', 'the other form', { changed: { 'sallyport-inbox-enc': (was: string) => `${was}.0` } }],
] as const)('of the %s form, with %s: nothing is passed on', (form, _what, more) => {
  expect(deliver({}, ['body'], { ...more, form })).toMatchObject({ request: undefined, code: 'inbox-sealed' })
})

test.each([
  ['a body that is longer than its head says', { bodyBytes: 3 }, ['body']],
  ['one that is shorter', { bodyBytes: 5 }, ['body']],
  ['a part that is missing', { parts: 2, bodyBytes: 4 }, ['body']],
  ['one part too many', { bodyBytes: 8 }, ['body', 'body']],
  ['a field that would end the head', { headers: ['x-a', '1\r\n\r\nGET /evil'] }, ['body']],
])('%s: the receiver never sees its end', (_what, head, parts) => {
  const { events, code } = deliver(head, parts)
  expect(events).not.toContain('requestEnd')
  expect(code).toBe('inbox-sealed')
})

test('nothing is passed on without the key', () => {
  expect(deliver({}, ['body'], { keys: undefined })).toMatchObject({ request: undefined, code: 'inbox-sealed' })
  const other = new InboxKeys([newPrivateKey()])
  expect(deliver({}, ['body'], { keys: other })).toMatchObject({ request: undefined, code: 'inbox-sealed' })
})

test('a part that arrives byte by byte keeps little more memory than that, and counts as held', async () => {
  const both = ends()
  const kept: number[] = []
  const front = { ...both.front, requestKept: (bytes: number) => void kept.push(bytes) }
  const { enc } = sealerFor(publicBytes(KEY))
  const headers = ['sallyport-inbox-key', keyIdOf(publicBytes(KEY)), 'sallyport-inbox-enc', enc]
  const sink = unsealing(KEYS, noLogger)(both.next)({ ...EXCHANGE, method: 'POST', headers, runtime: 'demo' }, front)
  sink.requestData(Buffer.of(0, 1, 0, 0))
  await collectGarbage()
  const before = process.memoryUsage().arrayBuffers
  // As a session that is busy with others delivers them: each cut from its own slab.
  for (let i = 0; i < 500; i++) sink.requestData(Buffer.alloc(64 * 1024).subarray(100, 101))
  await collectGarbage()
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(512 * 1024)
  expect(kept.at(-1)).toBe(504)
  sink.requestEnd([])
})

test('a part that is too long ends its webhook at once', () => {
  const both = ends()
  const codes: (string | undefined)[] = []
  const responseHead = ({ headers }: { headers: string[] }) => void codes.push(reportedError(headers))
  const { enc } = sealerFor(publicBytes(KEY))
  const headers = ['sallyport-inbox-key', keyIdOf(publicBytes(KEY)), 'sallyport-inbox-enc', enc]
  const request = { ...EXCHANGE, method: 'POST', headers, runtime: 'demo' }
  unsealing(KEYS, noLogger)(both.next)(request, { ...both.front, responseHead }).requestData(Buffer.of(0, 16, 0, 1))
  expect(codes).toEqual(['inbox-sealed'])
})

test('what was opened counts as held until the next layer has consumed it, and the head to the end', () => {
  const head = { bodyBytes: 10_000 }
  const both = deliver(head, ['b'.repeat(10_000)], { step: 1_000 })
  const headBytes = JSON.stringify({ ...HEAD, ...head }).length
  const kept = () => Number(both.events.findLast(event => event.startsWith('requestKept'))?.slice(12))
  // Some of its bytes have not been credited yet, and so count anyway.
  expect(kept()).toBeGreaterThan(9_000)
  both.response.requestConsumed(4_000)
  both.response.requestConsumed(5_500)
  expect(kept()).toBeLessThanOrEqual(headBytes + 500)
  both.response.requestConsumed(500)
  expect(kept()).toBe(headBytes)
})

test('a webhook that is not complete owes no credit, and holds nothing', () => {
  const { events, bytes } = deliver({ parts: 2, bodyBytes: 8 }, ['body'])
  const credit = events.filter(event => event.startsWith('requestConsumed')).map(event => Number(event.slice(16)))
  expect(credit.reduce((sum, more) => sum + more, 0)).toBe(bytes)
  expect(events.findLast(event => event.startsWith('requestKept'))).toBe('requestKept 0')
})

test('an answer that began before a webhook turned out to be incomplete is cut', () => {
  const answered = (response: ResponseSink) =>
    response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
  const { events } = deliver({ parts: 2, bodyBytes: 8 }, ['body'], { answered })
  expect(events.filter(event => event.includes('Abort'))).toEqual([
    'requestAbort inbox-sealed',
    'responseAbort inbox-sealed',
  ])
})

test('a webhook of several parts gets through a route that verifies it, with the least window', () => {
  const secret = readSecret({ scheme: 'github' }, randomBytes(32))
  const parts = [1, 2, 3].map(digit => String(digit).repeat(500_000))
  const [, signature] = createSigner({ scheme: 'github' }, secret).sign([Buffer.from(parts.join(''))], {
    id: '',
    timestamp: 0,
  })
  const consuming: Layer = next => (request, response) => {
    const back = next(request, response)
    const requestData = (chunk: Uint8Array) => {
      back.requestData(chunk)
      response.requestConsumed(chunk.length)
    }
    return { ...back, requestData }
  }
  const behind: Layer = next =>
    verifying(createVerifier({ scheme: 'github' }, [secret]), false, new BodyRoom(), consuming(next))
  const head = { headers: ['x-hub-signature-256', signature!], parts: 3, bodyBytes: 1_500_000 }
  expect(deliver(head, parts, { behind, step: 1_000, window: 4_096 }).events.at(-1)).toBe('requestEnd')
})
