// @module-tag slow
/** Argo Events' own handlers: the demo's stand-in against the one for GitHub, and all of them behind a pair. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createSigner } from '../../protocol/webhook/sign.ts'
import { createRouter, type Router } from '../../router/index.ts'
import type { Place } from '../support/caller.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'

const SECRET = 's3cret'
const HOOK = '/hooks/github'
const MIB = 1_048_576
/** How long an event takes on its way to the bus. */
const BUS_MS = 50

const sign = (body: string | Buffer, hash = 'sha256') =>
  `${hash}=${createHmac(hash, SECRET).update(body).digest('hex')}`
const form = (text: string) => `payload=${encodeURIComponent(text)}`

interface Asked {
  method?: string
  path?: string
  type?: string | null
  signature?: string | null
  body?: string
  /** Additional lines, or lines in place of the length. */
  more?: string[]
  /** How much of the body is sent before the answer. */
  sent?: number
}

const OBJECT = '{"a":1}'

function request(asked: Asked): string {
  const { method = 'POST', path = HOOK, type = 'application/json', body = OBJECT, more = [] } = asked
  const signature = asked.signature === undefined ? sign(body) : asked.signature
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'host: x',
    ...(type === null ? [] : [`content-type: ${type}`]),
    ...(signature === null ? [] : [`x-hub-signature-256: ${signature}`]),
    ...(body === '' || more.some(line => /^transfer-encoding|^content-length/.test(line))
      ? []
      : [`content-length: ${Buffer.byteLength(body)}`]),
    ...more,
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body.slice(0, asked.sent ?? body.length)}`
}

const LARGE = JSON.stringify({ a: 'x'.repeat(MIB) })
const CASES: Record<string, string> = {
  'a delivery': request({}),
  'a delivery as a form': request({
    type: 'application/x-www-form-urlencoded',
    body: form(OBJECT),
  }),
  'a form without payload': request({ type: 'application/x-www-form-urlencoded', body: 'a=1' }),
  'a form with a bad escape': request({ type: 'application/x-www-form-urlencoded', body: 'payload=%zz' }),
  'a form with a semicolon': request({ type: 'application/x-www-form-urlencoded', body: 'payload=1;a=2' }),
  'a charset': request({ type: 'application/json; charset=utf-8' }),
  'a type in capitals': request({ type: 'Application/JSON' }),
  'no type': request({ type: null }),
  'an empty type': request({ type: '' }),
  'text/plain': request({ type: 'text/plain' }),
  'a vendor type': request({ type: 'application/vnd.github+json' }),
  'a type without a slash': request({ type: 'json' }),
  'a type without a subtype': request({ type: 'application/' }),
  'a bad parameter': request({ type: 'application/json; charset' }),
  'a type with a space': request({ type: 'application/json x' }),
  'two types': request({ type: 'application/json', more: ['content-type: text/plain'] }),
  'no signature': request({ signature: null }),
  'a signature of another body': request({ signature: sign('other') }),
  'a signature with another prefix': request({ signature: 'md5=00' }),
  'a signature without a prefix': request({ signature: 'abc' }),
  'a signature that is no hex': request({ signature: 'sha256=xyz' }),
  'a signature of odd length': request({ signature: 'sha256=abc' }),
  'a short signature': request({ signature: 'sha256=abcd' }),
  'a signature with SHA-512': request({ signature: sign(OBJECT, 'sha512') }),
  'the old signature alone': request({ signature: null, more: [`x-hub-signature: ${sign(OBJECT, 'sha1')}`] }),
  'two signatures': request({ more: ['x-hub-signature-256: sha256=00'] }),
  'an empty body, signed': request({ body: '', more: ['content-length: 0'], signature: sign('') }),
  'no body': request({ body: '', signature: null }),
  'white space': request({ body: ' \n' }),
  'no JSON': request({ body: 'hello' }),
  'an array': request({ body: '[]' }),
  'a number': request({ body: '1' }),
  'a text': request({ body: '"a"' }),
  'a truth': request({ body: 'true' }),
  null: request({ body: 'null' }),
  'a chunked body': request({
    body: `${OBJECT.length.toString(16)}\r\n${OBJECT}\r\n0\r\n\r\n`,
    signature: sign(OBJECT),
    more: ['transfer-encoding: chunked'],
  }),
  GET: request({ method: 'GET', body: '', type: null, signature: null }),
  'GET with a type': request({ method: 'GET', body: '', signature: null }),
  HEAD: request({ method: 'HEAD', body: '', type: null, signature: null }),
  PUT: request({ method: 'PUT' }),
  DELETE: request({ method: 'DELETE', body: '', type: null, signature: null }),
  OPTIONS: request({ method: 'OPTIONS', body: '', type: null, signature: null }),
  'OPTIONS *': request({ method: 'OPTIONS', path: '*', body: '', type: null, signature: null }),
  'a query': request({ path: `${HOOK}?a=1&b=%2f` }),
  'an empty query': request({ path: `${HOOK}?` }),
  'absolute form': request({ path: `http://other${HOOK}?a` }),
  'an escaped letter': request({ path: '/hooks/%67ithub' }),
  'a slash at the end': request({ path: `${HOOK}/` }),
  'two slashes': request({ path: '/hooks//github?a=1' }),
  'a dot segment': request({ path: '/hooks/../hooks/github' }),
  'another path': request({ path: '/hooks/other' }),
  'another path, GET': request({ path: '/', method: 'GET', body: '', type: null, signature: null }),
  'a bad escape': request({ path: '/hooks/%zz' }),
  health: request({ path: '/health', method: 'GET', body: '', type: null, signature: null }),
  'health with a body': request({ path: '/health' }),
  'no host': 'GET / HTTP/1.1\r\n\r\n',
  'no request': 'hello\r\n\r\n',
  'an expectation that is kept': request({ more: ['expect: 100-continue'] }),
  'an expectation of what is not wanted': request({ type: 'text/plain', more: ['expect: 100-continue'] }),
  'another expectation': request({ more: ['expect: more'], body: '' }),
  'the largest body': request({ body: JSON.stringify({ a: 'x'.repeat(MIB - 8) }) }),
  'a body over the limit': request({ body: LARGE }),
  'a body far over the limit, which goes on': request({ body: LARGE, more: [`content-length: ${24 * MIB}`] }),
  'a body over the limit in chunks': request({
    body: `${LARGE.length.toString(16)}\r\n${LARGE}\r\n0\r\n\r\n`,
    signature: sign('x'),
    more: ['transfer-encoding: chunked'],
  }),
  'a small body that nobody wants': request({ type: 'text/plain', body: 'x'.repeat(100_000) }),
  'a large body that nobody wants': request({ type: 'text/plain', body: 'x'.repeat(300_000), sent: 10 }),
}

describe.runIf(needs('new-go', 'netns'))("Argo Events' event sources", () => {
  let folder: string
  const processes: ChildProcess[] = []
  const events: string[] = []
  let original: NetConnectOpts
  let standIn: NetConnectOpts

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-argo-'))
    const program = join(folder, 'argo-events')
    // Without cgo it runs in an empty root.
    await goBuild(join(import.meta.dirname, 'argo-events'), program, '.', { CGO_ENABLED: '0' })
    await mkdir(join(folder, 'argo-events-root/argo-events/secrets/hook'), { recursive: true })
    const root = join(folder, 'argo-events-root')
    const secretFile = join(root, 'argo-events/secrets/hook/secret')
    await writeFile(secretFile, `${SECRET}\n`)
    const real = spawn('unshare', ['--net', program, root, `${BUS_MS}ms`], { stdio: ['ignore', 'pipe', 'ignore'] })
    processes.push(real)
    await new Promise<void>(resolve => {
      createInterface(real.stdout).on('line', line => (line === 'ready' ? resolve() : events.push(line)))
    })
    original = { path: join(root, 'github.sock') }
    const script = resolve(import.meta.dirname, '../../cli/demo/event-source.ts')
    const stand = spawn(process.execPath, [script, '0', HOOK, secretFile, String(BUS_MS)], {
      stdio: ['ignore', 'inherit', 'pipe'],
    })
    processes.push(stand)
    const [line] = await once(createInterface(stand.stderr), 'line')
    standIn = { host: '127.0.0.1', port: Number(JSON.parse(line).address.split(':')[1]) }
  }, GO_BUILD_MS)
  afterAll(async () => {
    for (const process of processes) process.kill('SIGKILL')
    await rm(folder, { recursive: true, force: true })
  })

  test.each(Object.entries(CASES))('%s: the stand-in answers like the original', async (_, bytes) => {
    const [real, ours] = await Promise.all([converse(original, bytes), converse(standIn, bytes)])
    expect(ours).toEqual(real)
  })

  test('it half-closes if the body goes on, and waits before it resets', async () => {
    const bytes = request({ body: LARGE, more: [`content-length: ${24 * MIB}`] })
    for (const place of [original, standIn]) {
      const startedMs = performance.now()
      const { socket, answered } = await begin(place, bytes)
      await answered(text => text.endsWith('http: request body too large'))
      await Promise.all([once(socket, 'end')])
      // The answer and its end have arrived, and what is still sent is accepted or dropped until the connection closes.
      const closed = new Promise(resolve => socket.on('error', () => {}).once('close', resolve))
      const sending = setInterval(() => socket.write(Buffer.alloc(1000)), 10)
      await closed
      clearInterval(sending)
      expect(performance.now() - startedMs).toBeGreaterThan(400)
    }
  })

  /** TCP in front of a source's Unix socket. */
  async function openDoor(kind: string): Promise<Server> {
    const door = createServer(socket => {
      const inner = connect(join(folder, `argo-events-root/${kind}.sock`))
      socket.on('error', () => inner.destroy()).pipe(inner)
      inner.on('error', () => socket.destroy()).pipe(socket)
    })
    await new Promise<void>(resolve => door.listen(0, '127.0.0.1', resolve))
    return door
  }

  describe.each([
    ['webhook', 'bearer', 'success', 401, 'Invalid Auth token'],
    ['github', 'github', 'success', 400, 'payload signature check failed'],
    ['gitlab', 'gitlab', 'success', 400, 'token mismatch'],
    // It logs that once for the event and once for the request.
    ['bitbucketserver', 'bitbucket', 'successsuccess', 400, 'failed to validate bitbucketserver webhook request'],
  ] as const)('%s, behind a pair', (kind, scheme, success, status, complaint) => {
    /** The body is formatted in a way that nothing which had parsed it would write. */
    const deliver = async (id: string, secret: string, place: Place, route: string) => {
      const body = Buffer.from(`{ "a" : "\\u00e4\u00e4", "n": 1.0, "id":"${id}" }\n`)
      const signer = createSigner({ scheme }, readSecret({ scheme }, Buffer.from(secret)))
      const signed = signer.sign([body], { id: 'd-1', timestamp: 0 })
      const extra = kind === 'github' ? ['x-github-event', 'push'] : []
      const fields = ['content-type', 'application/json', ...extra, ...signed]
      const caller = await Http1Caller.connect(place)
      try {
        return await caller.ask({ method: 'POST', path: `/${route}/hooks/${kind}`, fields, body })
      } finally {
        caller.close()
      }
    }
    const recorded = (id: string) => events.filter(event => event.startsWith(`${kind}\t`) && event.includes(`"${id}"`))
    let relay: Server
    let pair: Pair

    beforeAll(async () => {
      relay = await openDoor(kind)
      const target = `http://127.0.0.1:${(relay.address() as AddressInfo).port}`
      const secrets = [{ file: join(folder, 'argo-events-root/argo-events/secrets/hook/secret') }]
      const checked = { name: 'checked', match: { path: '/checked' }, rewrite: { stripPrefix: '/checked' }, target }
      const routes = [
        { ...checked, verify: { scheme, secrets } },
        { name: 'open', match: { path: '/open' }, rewrite: { stripPrefix: '/open' }, target },
      ]
      pair = await startPair({ target: createRouter({ routes: { routes } }) })
    })
    afterAll(async () => {
      await pair.stop()
      relay.close()
    })

    test.each(['checked', 'open'])('what our signer signs is accepted, and recorded once: %s', async route => {
      const answer = await deliver(`good-${route}`, SECRET, pair.place, route)
      expect([answer.status, answer.content.toString()]).toEqual([200, success])
      await expect.poll(() => recorded(`good-${route}`)).toHaveLength(1)
      const { body } = JSON.parse(recorded(`good-${route}`)[0]!.split('\t')[1]!)
      expect(body).toMatchObject({ a: '\u00e4\u00e4', n: 1, id: `good-${route}` })
    })

    test('a forgery is refused by the handler, or by us before it', async () => {
      const theirs = await deliver('forged', 'other', pair.place, 'open')
      expect(theirs.status).toBe(status)
      expect(theirs.content.toString()).toContain(complaint)
      const ours = await deliver('forged', 'other', pair.place, 'checked')
      expect([ours.status, JSON.parse(ours.content.toString()).code]).toEqual([401, 'webhook-signature'])
      await deliver('behind', SECRET, pair.place, 'open')
      await expect.poll(() => recorded('behind')).toHaveLength(1)
      expect(recorded('forged')).toEqual([])
    })
  })

  describe('github, behind an inbox', () => {
    const verify = { scheme: 'github' as const, at: 'edge' as const }
    const signer = createSigner(verify, readSecret(verify, Buffer.from(SECRET)))
    let door: Server
    let pair: Pair
    let router: Router

    beforeAll(async () => {
      door = await openDoor('github')
      const secrets = [{ file: join(folder, 'argo-events-root/argo-events/secrets/hook/secret') }]
      const inbox = { answerWithin: '300ms', verify: { ...verify, secrets } }
      const target = `http://127.0.0.1:${(door.address() as AddressInfo).port}`
      router = createRouter({ routes: { routes: [{ name: 'a', match: { methods: ['POST'] }, target, inbox }] } })
      const kept = { url: `sqlite:${join(folder, 'inbox.db')}`, plaintext: true, diskFreeBytes: 0 }
      pair = await startPair({ target: router, server: { inbox: kept } })
    })
    afterAll(async () => {
      await pair.stop()
      door.close()
    })

    async function deliver(id: string, signed = true): Promise<number> {
      const body = Buffer.from(`{ "id":"${id}", "n": 1.0 }`)
      const fields = signer.sign([signed ? body : Buffer.from('other')], { id, timestamp: 0 })
      const more = ['content-type', 'application/json', 'x-github-event', 'push', 'x-github-delivery', id]
      const caller = await Http1Caller.connect(pair.place)
      const { status } = await caller.ask({ method: 'POST', path: HOOK, fields: [...more, ...fields], body })
      caller.close()
      return status
    }

    const recorded = (prefix: string) =>
      events.flatMap(event => /^github\t.*"id":"([^"]+)"/.exec(event)?.[1] ?? []).filter(id => id.startsWith(prefix))

    test('webhooks sent while its client is offline arrive in order, once, and no forgery is kept', async () => {
      expect(await deliver('now-1')).toBe(200)
      await pair.tunnel.close({ graceMs: 0 })
      const ids = Array.from({ length: 20 }, (_, i) => `away-${i}`)
      for (const id of ids) expect(await deliver(id)).toBe(202)
      expect(await deliver('away-forged', false)).toBe(401)
      await pair.connect('demo', router)
      await expect.poll(() => recorded('away-')).toEqual(ids)
      expect([200, 202]).toContain(await deliver('away-last'))
      await expect.poll(() => recorded('away-')).toEqual([...ids, 'away-last'])
    })

    test('webhooks sent while the bus is down arrive when it is back, in order and once', async () => {
      const real = processes[0]!
      real.kill('SIGUSR2')
      await expect.poll(async () => (await converse(original, request({}))).status).toContain('500')
      const ids = Array.from({ length: 5 }, (_, i) => `bus-${i}`)
      for (const id of ids) expect(await deliver(id)).toBe(202)
      real.kill('SIGUSR2')
      await expect.poll(() => recorded('bus-')).toEqual(ids)
    })
  })

  test('while the bus is down, an event is not recorded, and the caller is told', async () => {
    const told: Conversation[] = []
    for (const [process, place] of [
      [processes[0]!, original],
      [processes[1]!, standIn],
    ] as const) {
      process.kill('SIGUSR2')
      const isAway = (answer: Conversation) => answer.status.includes('500')
      await expect.poll(async () => isAway(told[told.push(await converse(place, request({}))) - 1]!)).toBe(true)
      process.kill('SIGUSR2')
      await expect.poll(async () => isAway(await converse(place, request({})))).toBe(false)
    }
    const [real, ours] = told.filter(({ status }) => status.includes('500'))
    expect(real!.text).toBe('failed to record event')
    expect(ours).toEqual(real)
  })

  test('the stand-in is inactive at first, in the words of the original', async () => {
    const script = resolve(import.meta.dirname, '../../cli/demo/event-source.ts')
    const secret = join(folder, 'argo-events-root/argo-events/secrets/hook/secret')
    const starting = spawn(process.execPath, [script, '0', HOOK, secret, '0', '2000'], {
      stdio: ['ignore', 'inherit', 'pipe'],
    })
    processes.push(starting)
    const [line] = await once(createInterface(starting.stderr), 'line')
    const place = { host: '127.0.0.1', port: Number(JSON.parse(line).address.split(':')[1]) }
    expect(await converse(place, request({}))).toMatchObject({
      status: 'HTTP/1.1 400 Bad Request',
      text: 'endpoint is inactive',
    })
    await expect.poll(async () => (await converse(place, request({}))).text).toBe('success')
  })

  test('events go to the bus one at a time', async () => {
    for (const place of [original, standIn]) {
      const startedMs = performance.now()
      const answers = await Promise.all(Array.from({ length: 8 }, () => converse(place, request({}))))
      expect(answers.map(({ text }) => text)).toEqual(Array(8).fill('success'))
      expect(performance.now() - startedMs).toBeGreaterThanOrEqual(8 * BUS_MS - 10)
    }
  })
})

interface Conversation {
  readonly status: string
  readonly fields: string[]
  readonly text: string
  /** Whether a second request on the connection is answered. */
  readonly goesOn: boolean
}

const SECOND = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'

/** The answer, and whether the connection can be used again; informational answers count as fields. */
async function converse(place: NetConnectOpts, bytes: string): Promise<Conversation> {
  const { socket, answered } = await begin(place, bytes)
  const isHead = bytes.startsWith('HEAD ')
  const first = await answered(text => isWhole(text, isHead))
  const ended = socket.readableEnded || (await Promise.race([once(socket, 'end'), second(socket, answered, first)]))
  socket.destroy()
  const [head = '', ...rest] = first.split('\r\n\r\n')
  const isInterim = head.startsWith('HTTP/1.1 100')
  const [status = '', ...fields] = (isInterim ? rest.shift()! : head).split('\r\n')
  const kept = fields.map(field => field.toLowerCase()).filter(field => !field.startsWith('date:'))
  return {
    status: (isInterim ? 'after 100: ' : '') + status,
    fields: kept.sort(),
    text: rest.join('\r\n\r\n'),
    goesOn: ended === 'goes on',
  }
}

async function second(socket: Socket, answered: Answered, first: string): Promise<string | undefined> {
  // Bytes still owed to the first request come before those of the second.
  if (/^connection: close/im.test(first) || first === '') return await new Promise(() => {})
  socket.write(SECOND)
  await answered(text => text.length > first.length && text.endsWith('\r\n\r\nOK'))
  return 'goes on'
}

type Answered = (holds: (text: string) => boolean) => Promise<string>

/** Sends `bytes`; `answered` resolves once what arrived satisfies it, or nothing more arrives. */
async function begin(place: NetConnectOpts, bytes: string): Promise<{ socket: Socket; answered: Answered }> {
  const socket = connect({ ...place, allowHalfOpen: true })
  let text = ''
  let over = false
  let wake = () => {}
  socket.setEncoding('latin1').on('data', chunk => {
    text += chunk
    wake()
  })
  for (const event of ['end', 'close', 'error']) {
    socket.on(event, () => {
      over = true
      wake()
    })
  }
  await once(socket, 'connect')
  socket.write(bytes, 'latin1')
  const answered: Answered = async holds => {
    while (!over && !holds(text)) {
      await new Promise<void>(resolve => {
        wake = resolve
      })
    }
    return text
  }
  return { socket, answered }
}

/** Whether the final answer has arrived with its announced length; without a length it ends with the connection. */
function isWhole(text: string, isHead: boolean): boolean {
  const final = text.replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '')
  const end = final.indexOf('\r\n\r\n')
  if (end < 0) return false
  if (isHead) return true
  const length = /^content-length: (\d+)/im.exec(final.slice(0, end))?.[1]
  return length !== undefined && final.length >= end + 4 + Number(length)
}
