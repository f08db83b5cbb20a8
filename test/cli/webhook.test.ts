import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { HeaderList } from '../../protocol/exchange.ts'
import { SCHEMES, type SchemeName } from '../../protocol/webhook/scheme.ts'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createVerifier } from '../../protocol/webhook/verify.ts'
import { Running } from './process.ts'
import { sallyport } from './run.ts'

interface Seen {
  readonly request: IncomingMessage
  readonly body: Buffer
}

const folder = mkdtempSync(join(tmpdir(), 'sallyport-webhook-'))
const seen: Seen[] = []
let status = 200
const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', chunk => chunks.push(chunk))
  request.on('end', () => {
    seen.push({ request, body: Buffer.concat(chunks) })
    const fields =
      status === 202
        ? { 'sallyport-inbox-id': 'i-1' }
        : status === 401
          ? { 'sallyport-error': 'webhook-signature' }
          : {}
    response.writeHead(status, fields).end('done\u0007\n')
  })
})
let origin: string

beforeAll(async () => {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  origin = `http://demo.localhost:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.close()
  rmSync(folder, { recursive: true })
})

function file(name: string, content: string | Buffer): string {
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

const STANDARD = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'

async function sendOne(...args: string[]) {
  const ran = await sallyport(['webhook', 'send', ...args, `${origin}/hooks/a?b=1`])
  return { ran, last: seen.at(-1)! }
}

test.each(Object.keys(SCHEMES) as SchemeName[])('%s: what arrives is signed', async scheme => {
  const text = /standard|signing/.test(scheme) ? STANDARD : 's3cret'
  const hmac = scheme === 'hmac' ? ['--hmac.header', 'X-Sig', '--hmac.prefix', 'v=', '--hmac.encoding', 'base64'] : []
  const body = Buffer.from([123, 0, 255, 125])
  const { ran, last } = await sendOne(
    ...['--scheme', scheme, '--secret-file', file('secret', `${text}\n`), '--body', file('body', body), ...hmac],
  )
  expect(ran).toMatchObject({ code: 0, notes: '' })
  expect(ran.out).toMatch(/^200 in \d+ ms\ndone\?\n$/)
  expect(last.body).toEqual(body)
  expect(last.request.url).toBe('/hooks/a?b=1')
  const options = { scheme, ...(scheme === 'hmac' && ({ header: 'x-sig', prefix: 'v=', encoding: 'base64' } as const)) }
  const headers: HeaderList = last.request.rawHeaders.map((part, i) => (i % 2 === 0 ? part.toLowerCase() : part))
  const verification = createVerifier(options, [readSecret(options, Buffer.from(text))]).begin(headers, Date.now())
  verification.update(last.body)
  expect(verification.refusal ?? verification.verdict()).toBeUndefined()
})

test("the defaults are GitHub's, and the Standard Webhooks library accepts ours", async () => {
  const { last } = await sendOne('--secret-file', file('secret', 's3cret'))
  expect(last.request.headers).toMatchObject({ 'content-type': 'application/json', 'x-github-event': 'push' })
  expect(last.request.headers['x-github-delivery']).toMatch(/^[0-9a-f-]{36}$/)
  expect(JSON.parse(last.body.toString())).toHaveProperty('message')
  const standard = await sendOne('--scheme', 'standard-webhooks', '--secret-file', file('s', STANDARD), '--id', 'msg_1')
  const fields = standard.last.request.headers as Record<string, string>
  expect(fields['webhook-id']).toBe('msg_1')
  expect(() => new Webhook(STANDARD).verify(standard.last.body.toString(), fields)).not.toThrow()
})

test('other fields can be given, and the answer is printed', async () => {
  const secret = ['--secret-file', file('secret', 's3cret')]
  const header = ['--header', 'X-GitHub-Event: ping', '--header', 'x-more: 1']
  const { last } = await sendOne(...secret, ...header)
  expect(last.request.headers).toMatchObject({ 'x-github-event': 'ping', 'x-more': '1' })
  status = 202
  expect((await sendOne(...secret)).ran).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^202 in \d+ ms, stored in the inbox as i-1\n/),
  })
  status = 401
  const refused = await sendOne(...secret, '--json')
  expect(refused.ran.code).toBe(1)
  expect(JSON.parse(refused.ran.out)).toMatchObject({ status: 401, error: 'webhook-signature' })
  status = 200
})

test.each([
  [['--scheme', 'gthub'], 2, /--scheme gthub: expected one of github, gitea/],
  [['--scheme', 'hmac'], 2, /header: is missing/],
  [['--scheme', 'hmac', '--hmac.header', 'x', '--hmac.encoding', 'b64'], 2, /expected hex or base64/],
  [['--scheme', 'hmac', '--hmac.header', 'x', '--hmac.hash', 'md5'], 2, /expected sha256 or sha512/],
  [
    ['--scheme', 'standard-webhooks', '--secret-file', file('text', 'whsec_!')],
    3,
    /text: is no secret of Standard Webhooks/,
  ],
  [['--id', 'a.b'], 2, /--id a\.b: expected letters/],
  [['--header', 'x'], 2, /expected "NAME: VALUE"/],
  [['--body', '/nowhere'], 3, /cannot read the body \/nowhere: no such file/],
] as const)('%j', async (args, code, message) => {
  const before = seen.length
  const { ran } = await sendOne(
    ...(args.some(arg => arg === '--secret-file') ? [] : ['--secret-file', file('secret', 's3cret')]),
    ...args,
  )
  expect(ran.notes).toMatch(message)
  expect(ran.code).toBe(code)
  expect(seen.length).toBe(before)
})

test('what cannot be sent', async () => {
  const secret = ['--secret-file', file('secret', 's3cret')]
  const run = (...args: string[]) => sallyport(['webhook', 'send', ...args])
  expect(await run('https://x')).toMatchObject({ code: 2, notes: expect.stringContaining('--secret-file is missing') })
  expect(await run(...secret, 'ftp://x')).toMatchObject({
    code: 2,
    notes: expect.stringContaining('expected an http(s) URL'),
  })
  expect(await run(...secret, 'http://a:b@x')).toMatchObject({
    code: 2,
    notes: expect.stringContaining('no password in a URL'),
  })
  expect(await run(...secret, 'http://127.0.0.1:1/')).toMatchObject({
    code: 1,
    notes: expect.stringContaining('http://127.0.0.1:1 does not answer (ECONNREFUSED)'),
  })
  expect(await run('--secret-file', file('empty', '\n'), 'http://x')).toMatchObject({
    code: 3,
    notes: expect.stringMatching(/empty: is empty/),
  })
})

test('an authority that is not trusted is named as the reason', async () => {
  expect((await sallyport(['certs', 'init', '--out', folder, '--host', 'localhost'])).code).toBe(0)
  const pem = (name: string) => readFileSync(join(folder, name))
  const secure = createSecureServer({ cert: pem('server.pem'), key: pem('server-key.pem') }, (_, response) => {
    response.end()
  })
  await new Promise<void>(resolve => secure.listen(0, '127.0.0.1', resolve))
  try {
    const url = `https://localhost:${(secure.address() as AddressInfo).port}`
    const send = (...more: string[]) =>
      sallyport(['webhook', 'send', '--secret-file', file('secret', 's3cret'), ...more, url])
    expect(await send()).toMatchObject({
      code: 1,
      notes: `sallyport: the certificate of ${url} is not trusted here: give its authority with --ca FILE\n`,
    })
    expect(await send('--ca', join(folder, 'ca.pem'))).toMatchObject({ code: 0 })
  } finally {
    secure.close()
  }
})

test.runIf(process.platform === 'linux')('authorities of the system count if NODE_USE_SYSTEM_CA is set', async () => {
  expect((await sallyport(['certs', 'init', '--out', join(folder, 'system'), '--host', 'localhost'])).code).toBe(0)
  const pem = (name: string) => readFileSync(join(folder, 'system', name))
  const secure = createSecureServer({ cert: pem('server.pem'), key: pem('server-key.pem') }, (_, response) => {
    response.end()
  })
  await new Promise<void>(resolve => secure.listen(0, '127.0.0.1', resolve))
  try {
    const url = `https://localhost:${(secure.address() as AddressInfo).port}`
    const send = async (use: string) => {
      const environment = { SSL_CERT_FILE: join(folder, 'system/ca.pem'), NODE_USE_SYSTEM_CA: use }
      const sent = new Running(['webhook', 'send', '--secret-file', file('secret', 's3cret'), url], environment)
      return await sent.end()
    }
    expect([await send('0'), await send('1')]).toEqual([1, 0])
  } finally {
    secure.close()
  }
})

test('of an endless answer, the beginning is shown', async () => {
  const endless = createServer((_request, response) => {
    response.on('drain', () => response.write('y'.repeat(100_000)))
    response.writeHead(200).write('y'.repeat(100_000))
  })
  await new Promise<void>(resolve => endless.listen(0, '127.0.0.1', resolve))
  try {
    const url = `http://127.0.0.1:${(endless.address() as AddressInfo).port}/`
    const ran = await sallyport(['webhook', 'send', '--secret-file', file('secret', 's3cret'), url])
    expect(ran.code).toBe(0)
    expect(ran.out).toMatch(/^200 in \d+ ms\ny{4096}\n$/)
  } finally {
    endless.closeAllConnections()
    endless.close()
  }
})
