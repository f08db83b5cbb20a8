import { createHmac, randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Caller } from '../support/caller.ts'
import { value } from '../support/http1-wire.ts'
import { allEntries, describeThrough, ourEntries, Stack } from '../support/stack.ts'

const BODY_LIMIT = 25 * 1024 * 1024
/** Published by GitHub in "Validating webhook deliveries". */
const GITHUB = {
  secret: "It's a Secret to Everybody",
  body: 'Hello, World!',
  signature: 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17',
}
/** Published with the Standard Webhooks specification. */
const STANDARD = {
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  timestamp: 1614265330,
  body: '{"test": 2432232314}',
  signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
}

interface Delivery {
  path: string
  fields: string[]
  body: Buffer
}

let stack: Stack
let delivered: Delivery

beforeAll(async () => {
  stack = await Stack.start(upstream => ({
    routes: [
      {
        name: 'webhooks',
        match: { path: '/webhooks/{namespace}/{eventSource}', methods: ['POST', 'GET'] },
        target: 'http://{eventSource}-eventsource-svc.{namespace}.svc.cluster.local:80',
        allow: { namespace: ['demo'] },
        limits: { bodyBytes: BODY_LIMIT },
      },
    ],
    resolve: { 'push-eventsource-svc.demo.svc.cluster.local:80': `127.0.0.1:${upstream.port}` },
  }))
  stack.upstream.answers.set('/webhooks/demo/push/github', async request => {
    delivered = { path: request.path, fields: request.fields, body: await request.readAll() }
    await request.answer(200, 'success')
  })
})
afterAll(() => stack?.stop())

describeThrough(allEntries, name => {
  const path = '/webhooks/demo/push/github?from=a+b%20c'
  let caller: Caller
  beforeAll(async () => {
    caller = await stack.caller(name)
  })

  it("GitHub's published vector verifies at the upstream", async () => {
    const fields = ['x-github-event', 'push', 'x-hub-signature-256', GITHUB.signature]
    const reply = await caller.ask({ method: 'POST', path, fields, body: GITHUB.body })
    expect([reply.status, reply.content.toString()]).toEqual([200, 'success'])
    expect(delivered.path).toBe(path)
    expect(value(delivered.fields, 'x-hub-signature-256')).toBe(GITHUB.signature)
    expect(`sha256=${createHmac('sha256', GITHUB.secret).update(delivered.body).digest('hex')}`).toBe(GITHUB.signature)
  })

  it('the published vector of Standard Webhooks verifies, and so does one signed now', async () => {
    const webhook = new Webhook(STANDARD.secret)
    expect(webhook.sign(STANDARD.id, new Date(STANDARD.timestamp * 1000), STANDARD.body)).toBe(STANDARD.signature)
    const now = new Date()
    const signature = webhook.sign(STANDARD.id, now, STANDARD.body)
    const stamp = String(Math.floor(now.getTime() / 1000))
    const fields = ['webhook-id', STANDARD.id, 'webhook-timestamp', stamp, 'webhook-signature', signature]
    await caller.ask({ method: 'POST', path, fields, body: STANDARD.body })
    const seen = Object.fromEntries(
      ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(field => [
        field,
        value(delivered.fields, field) ?? '',
      ]),
    )
    expect(webhook.verify(delivered.body.toString(), seen)).toEqual({ test: 2432232314 })
    expect(() => webhook.verify(`${delivered.body} `, seen)).toThrow()
  })

  it.each([
    ['gzip', () => gzipSync('{"ref":"refs/heads/main"}'), ['content-encoding', 'gzip']],
    ['empty', () => Buffer.alloc(0), []],
    ['invalid UTF-8', () => Buffer.from([0xff, 0xfe, 0x00, 0xc3, 0x28, 0x0d, 0x0a, 0x0a]), []],
    ['JSON with odd spacing and escapes', () => Buffer.from('{ "a" :1e2,\r\n"a":"\\u00e9\\/" }\n'), []],
    ['25 MiB', () => randomBytes(BODY_LIMIT), []],
  ])('%s: byte for byte, and the signature holds', async (_, make, more) => {
    const body = make()
    const signature = `sha256=${createHmac('sha256', 'k').update(body).digest('hex')}`
    const fields = ['content-type', 'application/json', 'x-hub-signature-256', signature, ...more]
    const reply = await caller.ask({ method: 'POST', path, fields, body })
    expect(reply.status).toBe(200)
    expect(delivered.body.equals(body)).toBe(true)
    expect(value(delivered.fields, 'content-type')).toBe('application/json')
    expect(value(delivered.fields, 'content-encoding')).toBe(more[1])
    expect(value(delivered.fields, 'content-length')).toBe(String(body.length))
  })

  it('chunked: byte for byte', async () => {
    const exchange = caller.begin({ method: 'POST', path, stream: true })
    const parts = [Buffer.from('one'), Buffer.from([0, 255]), Buffer.alloc(70_000, 9)]
    for (const part of parts) await exchange.write(part)
    exchange.end()
    expect((await exchange.reply).status).toBe(200)
    await (await exchange.reply).readAll()
    expect(delivered.body.equals(Buffer.concat(parts))).toBe(true)
  })

  it('a namespace outside the list gets 404', async () => {
    const elsewhere = await caller.ask({ method: 'POST', path: '/webhooks/kube-system/push/github', body: 'x' })
    expect([elsewhere.status, value(elsewhere.fields, 'sallyport-error')]).toEqual([404, 'no-route'])
  })
})

// nginx does not read an answer that arrives while it is still sending the body.
describeThrough(ourEntries, name => {
  it('one byte over the limit gets 413', async () => {
    const caller = await stack.caller(name)
    const path = '/webhooks/demo/push/github'
    const big = await caller.ask({ method: 'POST', path, body: Buffer.alloc(BODY_LIMIT + 1) })
    expect([big.status, value(big.fields, 'sallyport-error')]).toEqual([413, 'body-too-large'])
    caller.close()
  })
})
