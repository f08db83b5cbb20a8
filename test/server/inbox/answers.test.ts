// @module-tag slow
/** What a sender is told, row by row of the table in docs/inbox.md, and what reaches the receiver. */
import { createHmac } from 'node:crypto'
import { afterEach, describe, expect, test } from 'vitest'
import type { SchemeName } from '../../../protocol/webhook/scheme.ts'
import { until } from '../../support/until.ts'
import { answer, leave } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
afterEach(() => ground.close())

const ALWAYS = { ...RULE, mode: 'always' as const }

async function connected(...given: Parameters<typeof makeGround>) {
  ground = await makeGround(...given)
  const client = await ground.connect()
  return { client, ...ground }
}

test("all is well: the receiver's answer is passed on, and nothing is stored", async () => {
  const { receiver, post, messages } = await connected()
  expect(await post('one')).toMatchObject({ status: 200, text: 'said 200' })
  expect(receiver.bodies).toEqual(['one'])
  expect(await messages()).toEqual([])
  expect(ground.server.stats().inbox).toMatchObject({ store: { commits: 1 }, accepted: { failed: 0 } })
})

test.each([301, 400, 401, 404, 413, 422])('%d: passed on, nothing is stored', async status => {
  const { receiver, post, messages } = await connected()
  receiver.says = () => status
  expect(await post('one')).toMatchObject({ status })
  expect(await messages()).toEqual([])
})

test.each([500, 502, 503, 408, 425, 429])('%d: 202, and it is delivered again', async status => {
  const { receiver, post, messages } = await connected()
  receiver.says = (_got, i) => (i === 0 ? status : 200)
  const said = await post('one', { headers: { 'x-github-delivery': 'd-1', 'x-hub-signature-256': 'sha256=00' } })
  expect(said.status).toBe(202)
  const { id, status: stored } = JSON.parse(said.text)
  expect({ id, stored }).toEqual({ id: said.headers['sallyport-inbox-id'], stored: 'stored' })
  await until(async () => (await messages('delivered')).length === 1)
  expect(receiver.bodies).toEqual(['one', 'one'])
  const [, again] = receiver.got
  expect(again).toMatchObject({ id, attempt: 2 })
  expect(again!.request.headers).toEqual(expect.arrayContaining(['x-hub-signature-256', 'sha256=00']))
  expect(again!.request.requestId).toBe(said.headers['x-request-id'])
})

test('no session: 202 at once, and all of them arrive in order', async () => {
  const { client, receiver, post } = await connected()
  await leave(ground.server, client)
  const bodies = Array.from({ length: 5 }, (_, i) => `hook ${i}`)
  for (const body of bodies) expect((await post(body)).status).toBe(202)
  await ground.connect()
  await until(() => receiver.got.length === 5)
  expect(receiver.bodies).toEqual(bodies)
  expect(receiver.got.map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1, 1])
})

test('a restart of the server while the runtime is offline forgets nothing', async () => {
  const { client, receiver, post } = await connected()
  await leave(ground.server, client)
  expect((await post('before')).status).toBe(202)
  await ground.restart()
  expect((await post('after')).status).toBe(202)
  expect(await ground.messages('waiting')).toHaveLength(2)
  await ground.connect()
  await until(() => receiver.got.length === 2)
  expect(receiver.bodies).toEqual(['before', 'after'])
})

test('no answer in time: 202, and a later 2xx settles it', async () => {
  ground = await makeGround()
  await ground.connect([{ ...RULE, answerWithinMs: 50 }])
  ground.receiver.says = () => undefined
  expect((await ground.post('slow')).status).toBe(202)
  expect(await ground.messages('waiting')).toHaveLength(1)
  answer(ground.receiver.got[0]!.response, 200, 'at last')
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(ground.receiver.bodies).toEqual(['slow'])
})

test('the session is lost after the request: 202, and it is delivered again, marked', async () => {
  const { client, receiver, post } = await connected()
  receiver.says = (_got, i) => (i === 0 ? undefined : 200)
  const said = post('torn')
  await until(() => receiver.got.length === 1)
  client.ws.terminate()
  expect((await said).status).toBe(202)
  await ground.connect()
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(receiver.got.map(({ attempt }) => attempt)).toEqual([0, 2])
})

test('something waits in the lane: 202, after it; other lanes are not held up', async () => {
  const { receiver, post } = await connected()
  receiver.says = ({ body }) => (body.toString() === 'first' && receiver.got.length < 2 ? 500 : 200)
  expect((await post('first')).status).toBe(202)
  expect((await post('second')).status).toBe(202)
  expect((await post('elsewhere', { path: '/webhooks/b' })).status).toBe(200)
  await until(async () => (await ground.messages('delivered')).length === 2)
  expect(receiver.bodies.filter(body => body !== 'elsewhere')).toEqual(['first', 'first', 'second'])
})

describe('always', () => {
  test.each([200, 400, 500])('202, whatever the receiver says (%d)', async status => {
    ground = await makeGround()
    await ground.connect([ALWAYS])
    ground.receiver.says = () => status
    expect((await ground.post('one')).status).toBe(202)
    await until(() => ground.receiver.got.length === 1)
    expect(ground.receiver.got[0]).toMatchObject({ attempt: 1 })
  })
})

describe('a signature that the edge checks', () => {
  const SECRET = 'It is a secret to everybody'
  const verify = { scheme: 'github' as const, secrets: [Buffer.from(SECRET).toString('base64')] }
  const sign = (body: string) => `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`

  test('the log says whose webhook was refused, and with which code: a terminal tells such a cause once', async () => {
    const logged: object[] = []
    const warn = (fields: object) => void logged.push(fields)
    ground = await makeGround({ messagesPerRuntime: 1 }, { logger: { debug() {}, info() {}, error() {}, warn } })
    await leave(ground.server, await ground.connect([{ ...RULE, verify }]))
    const headers = { 'x-hub-signature-256': sign('good') }
    for (const body of ['bad', 'good', 'good']) await ground.post(body, { headers })
    const about = { runtime: 'demo', route: 'hooks', requestId: expect.any(String) }
    expect(logged).toMatchObject([
      { ...about, code: 'webhook-signature' },
      { ...about, code: 'inbox-full' },
    ])
  })

  test.each(['fallback', 'always'] as const)('%s: a wrong one gets 401, and nothing is stored', async mode => {
    ground = await makeGround()
    const client = await ground.connect([{ ...RULE, mode, verify }])
    const headers = { 'x-hub-signature-256': sign('good') }
    for (const refused of [{}, headers]) {
      const said = await ground.post('bad', { headers: refused })
      expect(said).toMatchObject({ status: 401, headers: { 'sallyport-error': 'webhook-signature' } })
    }
    expect((await ground.post('good', { headers })).status).toBe(mode === 'always' ? 202 : 200)
    await until(() => ground.receiver.got.length === 1)
    await leave(ground.server, client)
    expect((await ground.post('bad', { headers })).status).toBe(401)
    expect((await ground.post('good', { headers })).status).toBe(202)
    expect(await ground.messages()).toHaveLength(mode === 'always' ? 2 : 1)
    expect(ground.receiver.bodies).toEqual(['good'])
  })
})

test('no room: 503 inbox-full, never 202', async () => {
  const { client, post } = await connected({ messagesPerRuntime: 2 })
  await leave(ground.server, client)
  expect((await post('1')).status).toBe(202)
  expect((await post('2')).status).toBe(202)
  const said = await post('3')
  expect(said).toMatchObject({ status: 503, headers: { 'sallyport-error': 'inbox-full', 'retry-after': '5' } })
  expect(ground.server.stats().inbox!.refused).toMatchObject({ 'inbox-full': 1 })
})

test('no room in one lane: 503 inbox-full, and others have theirs', async () => {
  const { client, post } = await connected({ messagesPerLane: 1 })
  await leave(ground.server, client)
  const lane = [await post('1'), await post('2'), await post('3')].map(({ status }) => status)
  expect(lane).toEqual([202, 503, 503])
  expect((await post('1', { path: '/webhooks/b' })).status).toBe(202)
})

test('the same webhook twice while it waits is a duplicate; the same id with another body is not', async () => {
  const { client, receiver, post } = await connected()
  await leave(ground.server, client)
  const headers = { 'x-github-delivery': 'd-1' }
  const first = JSON.parse((await post('a', { headers })).text)
  expect(JSON.parse((await post('a', { headers })).text)).toEqual({ id: first.id, status: 'duplicate' })
  expect(JSON.parse((await post('b', { headers })).text)).toMatchObject({ status: 'stored' })
  await ground.connect()
  await until(() => receiver.got.length === 2)
  expect(receiver.bodies).toEqual(['a', 'b'])
})

test.each(['', ' ', '""', '" "'])(
  'an empty id (%j) identifies nothing: the same body again is another webhook',
  async id => {
    const { client, post } = await connected()
    await leave(ground.server, client)
    const headers = { 'idempotency-key': id }
    for (let i = 0; i < 2; i++) expect(JSON.parse((await post('same', { headers })).text).status).toBe('stored')
  },
)

test('the same id and body for another endpoint is another webhook', async () => {
  const { client, receiver, post } = await connected()
  await leave(ground.server, client)
  const headers = { 'idempotency-key': 'm-1' }
  const paths = ['/webhooks/a', '/webhooks/b', '/webhooks/a?tenant=2']
  for (const path of paths) expect(JSON.parse((await post('same', { path, headers })).text).status).toBe('stored')
  await ground.connect()
  await until(() => receiver.got.length === paths.length)
  expect(new Set(receiver.got.map(({ request }) => request.path))).toEqual(new Set(paths))
})

test('several without an answer in time: the lane waits for all of them, and none is sent twice', async () => {
  ground = await makeGround()
  await ground.connect([{ ...RULE, answerWithinMs: 50 }])
  const { receiver } = ground
  receiver.says = ({ attempt }) => (attempt > 0 ? 200 : undefined)
  const said = await Promise.all(['A', 'B', 'C'].map(body => ground.post(body)))
  expect(said.map(({ status }) => status)).toEqual([202, 202, 202])
  for (const [i, { response }] of receiver.got.slice(0, 3).entries()) {
    answer(response, 200, 'at last')
    await until(async () => (await ground.messages('delivered')).length === i + 1)
  }
  await until(() => ground.server.stats().inbox?.lanes === 0)
  expect(receiver.got).toHaveLength(3)
  expect(ground.server.stats().inbox).toMatchObject({ messages: { waiting: 0, delivered: 3 }, bytes: 0 })
})

test('a body of 25 MiB waits, and arrives whole', async () => {
  const { client, receiver, post } = await connected()
  await leave(ground.server, client)
  const body = Buffer.alloc(25 * 1024 * 1024, 'abcdefghijk')
  expect((await post(body)).status).toBe(202)
  await ground.connect()
  await until(() => receiver.got.length === 1)
  expect(receiver.got[0]!.body.equals(body)).toBe(true)
  expect(ground.server.stats().inbox!.bufferBytes).toBe(0)
})

test('a request that no rule matches passes as usual', async () => {
  const { client, post } = await connected()
  await leave(ground.server, client)
  expect((await post('x', { path: '/other' })).status).toBe(503)
  expect((await post('x', { headers: { 'stripe-signature': 't=1,v1=00' } })).status).toBe(503)
})

test.each(['nosuch', 'constructor', '__proto__'])('a route whose signing scheme is %s has no inbox', async scheme => {
  ground = await makeGround()
  const client = await ground.connect([{ ...RULE, verify: { scheme: scheme as SchemeName, secrets: ['YWJj'] } }])
  expect((await ground.post('a')).status).toBe(200)
  await leave(ground.server, client)
  expect((await ground.post('b')).status).toBe(503)
})
