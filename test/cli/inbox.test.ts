/** An inbox as its operator sees it: processes, a kill, and the commands. */
import { createPrivateKey } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createKeys, createToken } from '../../certs/index.ts'
import { OpeningKey, partAad } from '../../protocol/sealing/sealed-webhook.ts'
import { until } from '../support/until.ts'
import { Running } from './process.ts'
import { sallyport } from './run.ts'

let folder: string
let upstream: Server
let signature: string | undefined
let says = 200
const got: { id: string | undefined; attempt: string | undefined; body: string }[] = []
const running: Running[] = []
const file = (name: string) => join(folder, name)
const environment = { RUNTIME_DIRECTORY: '' }

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-cli-inbox-'))
  mkdirSync(file('run'), { mode: 0o700 })
  mkdirSync(file('data'))
  environment.RUNTIME_DIRECTORY = file('run')
  await sallyport(['certs', 'init', '--out', folder, '--host', '127.0.0.1'])
  const keys = await createKeys()
  writeFileSync(file('jwks.json'), JSON.stringify(keys.jwks))
  const { token } = await createToken({ key: keys.privateJwk, runtime: 'demo', ttl: '1h' })
  writeFileSync(file('token'), token)
  writeFileSync(file('secret'), 'a shared secret')
  upstream = createServer((request, response) => {
    let body = ''
    request.on('data', chunk => {
      body += chunk
    })
    request.on('end', () => {
      const { 'sallyport-inbox-id': id, 'sallyport-inbox-attempt': attempt } = request.headers
      signature = String(request.headers['x-hub-signature-256'])
      got.push({ id: id?.toString(), attempt: attempt?.toString(), body })
      response.writeHead(says).end('success')
    })
  })
  upstream.listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  writeFileSync(
    file('routes.yaml'),
    `routes:
  - name: hooks
    match: { path: '/webhooks/{name}', methods: [POST] }
    target: 'http://127.0.0.1:${(upstream.address() as AddressInfo).port}'
    inbox: { mode: fallback, verify: { scheme: github, secrets: [{ file: ${file('secret')} }], at: edge } }
`,
  )
})
afterAll(async () => {
  for (const process of running.splice(0)) await process.end('SIGKILL')
  upstream.close()
  rmSync(folder, { recursive: true })
})

function start(args: readonly string[]): Running {
  const process = new Running([...args, '--admin.listen', '127.0.0.1:0'], environment)
  running.push(process)
  return process
}

const startServer = (control = '127.0.0.1:0') =>
  start([
    ...['server', '--public.listen', '127.0.0.1:0', '--control.listen', control, '--domain', 'tunnels.localhost'],
    ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
    ...['--auth.jwks.file', file('jwks.json'), '--inbox', `sqlite:${file('data/inbox.db')}`, '--inbox.disk-free', '0'],
  ])

async function startClient(server: Running): Promise<Running> {
  const client = start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
    ...['--token.file', file('token'), '--routes', file('routes.yaml'), '--inbox.key.file', file('inbox-key.pem')],
  ])
  await client.line(line => line.msg === 'connected')
  return client
}

async function type(server: Running, ...words: string[]) {
  return await sallyport([...words, '--admin', `http://${await server.address('admin')}`], { environment })
}

/** A GitHub delivery, with its id. */
async function send(server: Running, id: string, secret = file('secret'), ...more: string[]) {
  const [, port] = (await server.address('public')).split(':')
  const url = `http://127.0.0.1:${port}/webhooks/push`
  const host = ['--header', 'host: demo.tunnels.localhost']
  return await sallyport([
    'webhook',
    'send',
    '--scheme',
    'github',
    '--secret-file',
    secret,
    '--id',
    id,
    ...host,
    ...more,
    url,
  ])
}

interface Exported {
  readonly id: string
  readonly runtime: string
  readonly lane: string
  readonly received: string
  readonly enc: string
  readonly storedParts: string[]
}

/** The body of a long one, as the owner of the key reads it. */
function opened({ id, runtime, lane, received, enc, storedParts }: Exported, key: string): string {
  const opener = new OpeningKey(createPrivateKey(key)).opener(enc)
  const identity = { runtime, id, lane, received: Date.parse(received) }
  const parts = storedParts.map((part, n) => opener.open(n, partAad(identity, n), Buffer.from(part, 'base64')))
  return Buffer.concat(parts.slice(1)).toString()
}

test('webhooks outlive the client and a kill of the server, and every command does what it says', {
  tags: ['slow'],
}, async () => {
  const first = startServer()
  const client = await startClient(first)
  expect(statSync(file('inbox-key.pem')).mode & 0o777).toBe(0o600)
  const key = readFileSync(file('inbox-key.pem'), 'utf8')
  expect(await send(first, 'd-0')).toMatchObject({ code: 0 })
  await until(() => got.length === 1)
  await client.end('SIGKILL')
  await first.line(line => line.msg === 'session ended')
  writeFileSync(file('wrong'), 'another secret')
  expect((await send(first, 'd-x', file('wrong'))).out).toContain('401')
  for (const id of ['d-1', 'd-2']) expect((await send(first, id)).out).toContain('202')
  writeFileSync(file('long'), 'a long body '.repeat(120_000))
  expect((await send(first, 'd-3', undefined, '--body', file('long'))).out).toContain('202')
  await first.end('SIGKILL')

  const second = startServer()
  await second.line(line => line.msg === 'the store of the inbox is open')
  const listed = JSON.parse((await type(second, 'inbox', 'list', '--json')).out) as { id: string; state: string }[]
  expect(listed.map(({ state }) => state)).toEqual(['waiting', 'waiting', 'waiting'])
  const [newest, , oldest] = listed
  expect((await type(second, 'inbox', 'list', '--state', 'waiting')).out).toMatch(
    /^ID +RUNTIME +ROUTE .*\n[0-9a-f]{8} +demo/,
  )
  expect((await type(second, 'inbox', 'show', oldest!.id.slice(0, 13))).out).toContain(oldest!.id)
  expect(await type(second, 'inbox', 'show', 'nobody')).toMatchObject({ code: 1 })
  const exported = await type(second, 'inbox', 'export', '--runtime', 'demo')
  expect(exported.code).toBe(0)
  const lines = exported.out.trim().split('\n')
  expect(lines).toHaveLength(3)
  expect(opened(JSON.parse(lines[0]!) as Exported, key)).toBe(readFileSync(file('long'), 'utf8'))
  expect((await type(second, 'inbox', 'drop', newest!.id)).out).toBe(`webhook ${newest!.id}: dropped\n`)
  expect((await type(second, 'inbox', 'pause', '--runtime', 'demo')).out).toContain('paused')
  expect((await type(second, 'status')).out).toContain('inbox: 2 waiting, 0 dead, 0 delivered')
  expect((await type(second, 'inbox', 'replay')).code).toBe(2)
  // An empty text, as of a variable that is not set, is no time from which all would be dropped.
  expect(await type(second, 'inbox', 'drop', '--runtime', 'demo', '--since', '')).toMatchObject({ code: 2 })
  expect((await type(second, 'inbox', 'list', '--state', 'lost')).notes).toContain('state must be one of waiting, dead')

  const client2 = await startClient(second)
  expect(readFileSync(file('inbox-key.pem'), 'utf8')).toBe(key)
  expect(got).toHaveLength(1)
  expect((await type(second, 'inbox', 'resume', '--runtime', 'demo')).out).toContain('resumed')
  await until(() => got.length === 3)
  expect(got.slice(1).map(({ id, attempt }) => [id, attempt])).toEqual([
    [oldest!.id, '1'],
    [listed[1]!.id, '1'],
  ])
  expect(signature).toMatch(/^sha256=[0-9a-f]{64}$/)
  await until(async () =>
    (await type(second, 'inbox', 'list', '--state', 'delivered', '--json')).out.includes(oldest!.id),
  )

  expect((await type(second, 'inbox', 'replay', oldest!.id)).notes).toContain('no such webhook is waiting or dead')
  for (const action of ['replay', 'drop'])
    expect(await type(second, 'inbox', action, 'nobody', '--json')).toMatchObject({ code: 1, out: '' })
  await replayed(second, client2)
  const audited = second.lines.filter(({ audit }) => audit === true).map(({ action }) => action)
  expect(audited.slice(0, 5)).toEqual([
    '/inbox/drop',
    '/inbox/pause',
    '/inbox/resume',
    '/inbox/replay',
    '/inbox/replay',
  ])
  expect(await second.end('SIGTERM')).toBe(0)
})

/** A webhook that its receiver never accepts is dead until somebody replays it: by its id, or all of a runtime. */
async function replayed(server: Running, client: Running): Promise<void> {
  await client.end('SIGKILL')
  await until(() => server.lines.filter(line => line.msg === 'session ended').length === 2)
  for (const id of ['d-4', 'd-5']) expect((await send(server, id)).out).toContain('202')
  says = 410
  await startClient(server)
  // On a busy machine a query may take longer than the command waits, so it is repeated.
  const dead = async () => {
    let result = await type(server, 'inbox', 'list', '--state', 'dead', '--json')
    await until(async () => {
      if (result.code !== 0) result = await type(server, 'inbox', 'list', '--state', 'dead', '--json')
      return result.code === 0
    })
    return JSON.parse(result.out)
  }
  await until(async () => (await dead()).length === 2)
  const [newer, older] = (await dead()) as { id: string; reason: string }[]
  expect(older).toMatchObject({ reason: 'refused: 410' })
  says = 200
  const before = got.length
  expect((await type(server, 'inbox', 'replay', older!.id.slice(0, 13))).out).toBe(
    `webhook ${older!.id}: waits again\n`,
  )
  await until(() => got.length === before + 1)
  expect((await type(server, 'inbox', 'replay', '--runtime', 'demo', '--state', 'dead')).out).toBe(
    `webhook ${newer!.id}: waits again\n`,
  )
  await until(() => got.length === before + 2)
  expect(got.slice(before)).toMatchObject([
    { id: older!.id, attempt: '2', body: got[before - 2]!.body },
    { id: newer!.id, attempt: '2', body: got[before - 1]!.body },
  ])
  await until(async () => (await dead()).length === 0)
  expect(await type(server, 'inbox', 'replay', 'nobody')).toMatchObject({ code: 1 })
}

/**
 * An admin listener for replicas that keep this many each; two have long bodies, one of which lacks its last part.
 * `dropped`: it was gone after it was listed. `problem`: what it reports about a replica that does not answer.
 */
async function adminOf(
  replicas: Record<string, number>,
  { dropped, problem, route }: { readonly dropped?: string; readonly problem?: string; readonly route?: string } = {},
): Promise<{ url: string; close: () => void }> {
  const admin = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://localhost')
    const before = searchParams.get('before')?.split(',') ?? []
    const rows = Object.entries(replicas).flatMap(([replica, most]) => {
      const known = before.filter(id => id !== dropped && id.startsWith(`${replica}-`))
      const mine = known.map(id => Number(id.slice(replica.length + 1)))
      const first = mine.length === 0 ? most : Math.min(...mine) - 1
      const limit = Number(searchParams.get('limit'))
      const ids = Array.from({ length: Math.max(0, Math.min(limit, first)) }, (_, i) => `${replica}-${first - i}`)
      return ids.filter(id => id !== dropped || before.length === 0).map(id => ({ id, replica }))
    })
    const id = searchParams.get('id')
    const message = { id, route, ...(id === 'a-2500' || id === 'a-2499' ? { parts: 3 } : { body: '' }) }
    const part = searchParams.get('part')
    const parts = id === 'a-2499' && part === '2' ? [] : [{ part: `${part}===` }]
    const messages: Record<string, object[]> = { '/inbox': rows, '/inbox/message': [message], '/inbox/part': parts }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ messages: messages[pathname], problems: problem && [problem] }))
  })
  admin.listen(0, '127.0.0.1')
  await once(admin, 'listening')
  return { url: `http://127.0.0.1:${(admin.address() as AddressInfo).port}`, close: () => admin.close() }
}

test.each([
  ['all', ['--runtime', 'demo'], 3201],
  ['as many as --limit allows', ['--limit', '2100'], 2100],
])('an export has %s, of every replica, and says what it leaves out', async (_, flags, most) => {
  const admin = await adminOf({ a: 2500, b: 700, c: 1 })
  const { out, notes, code } = await sallyport(['inbox', 'export', ...flags, '--admin', admin.url], { environment })
  admin.close()
  const exported = out
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { id: string; storedParts?: string[] })
  const ids = exported.map(({ id }) => id)
  expect(new Set(ids).size).toBe(most)
  expect(ids).toHaveLength(most)
  expect(code).toBe(1)
  expect(notes).toContain('1 of them have no body')
  const long = exported.filter(({ storedParts }) => storedParts !== undefined)
  expect(long).toEqual([{ id: 'a-2500', parts: 3, storedParts: ['0===', '1===', '2==='] }])
})

test('an export continues after a page whose last webhook was dropped meanwhile', async () => {
  const admin = await adminOf({ a: 2400 }, { dropped: 'a-1401' })
  const { out, code } = await sallyport(['inbox', 'export', '--admin', admin.url], { environment })
  admin.close()
  const ids = out.split('\n').flatMap(line => (line === '' ? [] : (JSON.parse(line) as { id: string }).id))
  expect(ids).toEqual(Array.from({ length: 2400 }, (_, i) => `a-${2400 - i}`))
  expect(code).toBe(0)
})

test('nothing in an export controls a terminal', async () => {
  const route = '\u001b[2J\u009b31m\u007f\u202ehooks'
  const admin = await adminOf({ a: 1 }, { route })
  const { out } = await sallyport(['inbox', 'export', '--admin', admin.url], { environment })
  admin.close()
  expect(out).toMatch(/^[\x20-\x7e]*\n$/)
  expect(JSON.parse(out)).toMatchObject({ route })
})

test('an export without one of the replicas ends with 1, and says so', async () => {
  const admin = await adminOf({ a: 1 }, { problem: 'b does not answer' })
  const { notes, code } = await sallyport(['inbox', 'export', '--admin', admin.url], { environment })
  admin.close()
  expect(notes).toContain('not all replicas: b does not answer')
  expect(notes).toContain('not all replicas have answered: some webhooks may be missing')
  expect(code).toBe(1)
})

test.each([
  ['no folder', ['--inbox', 'sqlite:/nowhere/at/all/inbox.db'], 'there is no folder /nowhere/at/all'],
  ['no store', ['--inbox', 'mysql://x'], 'expected sqlite:PATH'],
  ['a password in the URL', ['--inbox', 'postgres://u:opensesame@db/x'], 'put it into a file (--inbox.password.file)'],
  ['no database in the URL', ['--inbox', 'postgres://db'], 'expected postgres://USER@HOST:PORT/DATABASE'],
])('%s: the server says so, and does not start', async (_what, flags, problem) => {
  const args = [
    ...['server', '--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--domain', 'tunnels.localhost'],
    ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
    ...['--auth.jwks.file', file('jwks.json'), ...flags],
  ]
  const server = start(args)
  expect(await server.end()).not.toBe(0)
  expect(server.text).toContain(problem)
  expect(server.text).not.toContain('opensesame')
})

test.each(['replay', 'drop'])('%s waits two minutes for a server that has many webhooks to change', async command => {
  const within = AbortSignal.timeout.bind(AbortSignal)
  const faster = vi.spyOn(AbortSignal, 'timeout').mockImplementation(ms => within(ms / 100))
  const admin = createServer((_, response) => {
    response.setHeader('content-type', 'application/json')
    setTimeout(() => response.end(JSON.stringify({ replicas: [{ replica: 'a', messages: ['one'] }] })), 1200)
  })
  admin.listen(0, '127.0.0.1')
  await once(admin, 'listening')
  const url = `http://127.0.0.1:${(admin.address() as AddressInfo).port}`
  const done = await sallyport(['inbox', command, '--runtime', 'demo', '--admin', url], { environment })
  faster.mockRestore()
  admin.close()
  expect(done).toMatchObject({ code: 0, out: expect.stringContaining('webhook one: ') })
})
