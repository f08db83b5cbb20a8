/** `sallyport inspect`, on the admin listener of a client whose exchanges contain secrets and control characters. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { listenAdmin } from '../../admin/listener.ts'
import type { Io } from '../../cli/command.ts'
import { run } from '../../cli/run.ts'
import { inspection } from '../../cli/service/inspection.ts'
import { RingInspector } from '../../client/inspect/inspector.ts'
import { RING_EXCHANGES } from '../../client/inspect/ring.ts'
import type { Handler, HttpRequest } from '../../protocol/exchange.ts'
import { createForwarder } from '../../router/forward.ts'
import { Browser } from '../support/devtools.ts'
import { DEAF } from '../support/ends.ts'
import { needs } from '../support/needs.ts'
import { eventually } from '../support/until.ts'
import { sallyport } from './run.ts'

const CANARY = 'c4n4ry-S3cret-value'
const EVIL = `a\x1b]0;owned\x07\u009b2J\u202eb'\\$(touch owned)\``
const TOKEN = 'a token that is long enough'.replaceAll(' ', '-')

/** No work of an inspector takes time here, however busy the machine is. */
const standing = () => 0

let folder: string
let logged: string
let inspector: RingInspector
let handler: Handler
let url: string
let close: () => Promise<void>
let bodies: string[]

const target: Handler = (_, response) => {
  let body = ''
  return {
    requestData(chunk) {
      body += Buffer.from(chunk).toString('latin1')
    },
    requestEnd() {
      bodies.push(body)
      const headers = [
        'content-type',
        'application/json',
        'content-encoding',
        'gzip',
        'x-evil',
        EVIL,
        'set-cookie',
        CANARY,
      ]
      response.responseHead({ status: 200 + bodies.length, headers, bodyBytes: -1 })
      response.responseData(gzipSync(JSON.stringify({ token: CANARY, evil: EVIL, long: 'x'.repeat(5000) })))
      response.responseEnd([])
    },
    requestAbort() {},
    responseConsumed() {},
  }
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-inspect-'))
  writeFileSync(join(folder, 'token'), TOKEN)
  logged = ''
  bodies = []
  const log = (fields: object, message: string) => {
    logged += `${JSON.stringify(fields)} ${message}\n`
  }
  const logger = { debug: log, info: log, warn: log, error: log }
  inspector = new RingInspector('bodies', logger, standing)
  handler = inspector.layer(target)
  const none = { ready: () => true, status: () => ({}), metrics: async () => ({ contentType: '', text: '' }) }
  const source = { ...none, ...inspection(inspector) }
  const listener = await listenAdmin({ port: 0, source, token: () => TOKEN, logger })
  url = `http://127.0.0.1:${listener.address.port}`
  close = () => listener.close()
  send()
})
afterEach(async () => {
  await close()
  inspector.close()
  rmSync(folder, { recursive: true })
})

function send(more: Partial<HttpRequest> = {}): string {
  const body = Buffer.from(`{"password":"${CANARY}","evil":${JSON.stringify(EVIL)}}`)
  const sink = handler(
    {
      ...{ method: 'POST', authority: 'demo.example.com', path: `/hook?token=${CANARY}&x=1`, upgrade: false },
      ...{ headers: ['authorization', `Bearer ${CANARY}`, 'content-type', 'application/json', 'x-evil', EVIL] },
      ...{
        bodyBytes: body.length,
        peerAddress: '127.0.0.1',
        encrypted: true,
        requestId: 'r',
        session: 's',
        exchangeId: '',
      },
      ...{ caller: { address: '192.0.2.1', scheme: 'https', host: 'demo.example.com' } as const, runtime: 'demo' },
      ...more,
    },
    DEAF,
  )
  sink.requestData(body)
  sink.requestEnd([])
  return inspector.list().at(-1)!.id
}

function requestTo(path: string): HttpRequest {
  return {
    ...{ method: 'GET', authority: 'demo.example.com', path, upgrade: false, headers: [], bodyBytes: -1 },
    ...{ peerAddress: '127.0.0.1', encrypted: true, requestId: 'r', session: 's', exchangeId: '', caller: undefined },
  }
}

const inspect = (...args: string[]) =>
  sallyport(['inspect', ...args, '--admin', url, '--admin.token.file', join(folder, 'token')])

function expectHarmless(text: string): void {
  expect(text).not.toContain(CANARY)
  expect(text).toMatch(/\[redacted:[0-9a-f]{12}\]/)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that none is there
  expect(text).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/)
}

test('tail, show and replay show no secret and no control character, as text and as JSON', async () => {
  const [{ id }] = inspector.list() as { id: string }[] as [{ id: string }]
  for (const args of [
    ['tail', '--no-follow'],
    ['tail', '--no-follow', '--json'],
    ['show', id],
    ['show', id, '--json'],
  ]) {
    const { code, out } = await inspect(...args)
    expect([args, code]).toEqual([args, 0])
    expectHarmless(out)
    expect(out).toContain(id)
  }
  const { out } = await inspect('replay', id, '--yes')
  expectHarmless(out)
  expect(out).toMatch(/^status +201 +202 +no$/m)
  expect(out).toMatch(/^content-type +application\/json +application\/json +yes$/m)
  expect(bodies[1]).toBe(bodies[0])
  expect(logged).toContain('"audit":true')
  expect(logged).not.toContain(CANARY)
})

test('a replay needs confirmation if its method is not safe, and its changes are in no log', async () => {
  const id = send()
  const refused = await inspect('replay', id)
  expect([refused.code, refused.notes]).toEqual([2, expect.stringContaining('may act on the target twice: --yes')])
  writeFileSync(join(folder, 'body'), `{"token":"${CANARY}"}`)
  const { code } = await inspect('replay', id, '--yes', '--header', `x-note: ${CANARY}`, '--body', join(folder, 'body'))
  expect([code, bodies.at(-1)]).toEqual([0, `{"token":"${CANARY}"}`])
  expect(logged).toContain('"edits":["headers","body"]')
  expect(logged).not.toContain(CANARY)
})

test('a replay that was dropped while it ran is reported as done', async () => {
  const [{ id }] = inspector.list() as { id: string }[] as [{ id: string }]
  const flood = vi.fn(() => {
    for (let sent = 0; sent < RING_EXCHANGES; sent++) send()
  })
  inspector.subscribe(({ state, replayOf }) => {
    if (state === 'done' && replayOf === id) setImmediate(flood)
  })
  const { code, notes } = await inspect('replay', id, '--yes')
  expect(flood).toHaveBeenCalledTimes(1)
  expect(notes).toMatch(/^sallyport: the replay [0-9a-z-]+ has ended \(\d+\), but it is no longer kept\n$/)
  expect(code).toBe(1)
})

test('the command waits for as long as a replay may take', async () => {
  const [{ id }] = inspector.list() as { id: string }[] as [{ id: string }]
  const deadlines = vi.spyOn(AbortSignal, 'timeout')
  expect((await inspect('replay', id, '--yes')).code).toBe(0)
  expect(Math.max(...deadlines.mock.calls.map(([ms]) => ms))).toBeGreaterThan(60_000)
  deadlines.mockRestore()
})

test('a replay accepts a body as long as the inspector keeps one, and none that it would alter', async () => {
  const id = send()
  // JSON takes six bytes for each.
  writeFileSync(join(folder, 'long'), '\x01'.repeat(128 * 1024))
  expect((await inspect('replay', id, '--yes', '--body', join(folder, 'long'))).code).toBe(0)
  expect(bodies.at(-1)).toBe('\x01'.repeat(128 * 1024))
  writeFileSync(join(folder, 'bytes'), Buffer.from([0xff, 0xfe, 0x80]))
  const { code, notes } = await inspect('replay', id, '--yes', '--body', join(folder, 'bytes'))
  expect([code, notes, bodies.length]).toEqual([2, expect.stringContaining('is not UTF-8 text'), 3])
})

test('tail shows the end of an exchange that was open when it began', async () => {
  const open = inspector.layer((_, response) => {
    end = () => {
      response.responseHead({ status: 299, headers: [], bodyBytes: 0 })
      response.responseEnd([])
    }
    return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
  })
  let end = () => {}
  open(requestTo('/slow'), DEAF).requestEnd([])
  let out = ''
  const io: Io = {
    out: text => {
      out += text
    },
    note() {},
    environment: {},
    readStdin: async () => '',
  }
  const tail = run(['inspect', 'tail', '--admin', url, '--admin.token.file', join(folder, 'token')], io)
  // It has the list.
  await eventually(() => expect(out).toContain('/hook'))
  end()
  send({ path: '/last' })
  await eventually(() => expect(out).toContain('/last'))
  await close()
  close = async () => {}
  await tail
  expect(out.match(/\/slow/g)).toHaveLength(1)
  expect(out).toMatch(/ 299 +GET +\/slow/)
})

test('a missing exchange is reported as missing', async () => {
  const { code, notes } = await inspect('show', 'none')
  expect([code, notes]).toEqual([1, expect.stringContaining('there is no exchange none')])
})

test('tail says whether the token is missing or wrong, or nothing answers', async () => {
  const tail = async (...args: string[]) => (await sallyport(['inspect', 'tail', ...args])).notes.trim()
  expect(await tail('--admin', url)).toBe(`sallyport: ${url} requires its admin token: give --admin.token.file`)
  writeFileSync(join(folder, 'other'), TOKEN.toUpperCase())
  expect(await tail('--admin', url, '--admin.token.file', join(folder, 'other'))).toBe(
    `sallyport: ${url} did not accept this admin token: give --admin.token.file`,
  )
  await close()
  close = async () => {}
  expect(await tail('--admin', url)).toContain(`sallyport: ${url} does not answer (`)
})

test('every view and action needs the token', async () => {
  for (const path of ['/inspect', `/inspect/${inspector.list()[0]!.id}`, '/inspect/events']) {
    expect([path, (await fetch(`${url}${path}`)).status]).toEqual([path, 401])
  }
  const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' }
  expect((await fetch(`${url}/inspect/replay`, post)).status).toBe(401)
})

test('events arrive as they happen, and stop when their reader leaves', async () => {
  const headers = { authorization: `Bearer ${TOKEN}` }
  const stop = new AbortController()
  const response = await fetch(`${url}/inspect/events`, { headers, signal: stop.signal })
  const id = send()
  let text = ''
  for await (const part of response.body!.pipeThrough(new TextDecoderStream())) {
    text += part
    if (text.includes('"done"')) break
  }
  expect(text).toContain(`data: {"id":"${id}"`)
  expect(text).not.toContain(CANARY)
})

test('the file is HAR 1.2, with the sizes of what was sent and of what it shows', async () => {
  const path = join(folder, 'all.har')
  expect((await inspect('har', '--out', path)).code).toBe(0)
  const text = readFileSync(path, 'utf8')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(text).not.toContain(CANARY)
  const har = JSON.parse(text)
  expect(harProblems(har)).toEqual([])
  const { request, response, time, timings } = har.log.entries[0]
  const plain = JSON.stringify({ token: CANARY, evil: EVIL, long: 'x'.repeat(5000) })
  expect(response.content.size).toBe(Buffer.byteLength(plain))
  expect(response.bodySize).toBe(gzipSync(plain).length)
  expect(response.content.compression).toBe(response.content.size - response.bodySize)
  expect(request.bodySize).toBe(bodies[0]!.length)
  expect(time).toBeCloseTo(timings.send + timings.wait + timings.receive)
  expect((await inspect('har', '--out', path)).notes).toContain('already exists')
})

/** Chromium's network panel reads a file with this module of its own. */
const IMPORTED = `async text => {
  const { HARFormat, Importer } = await import('devtools://devtools/bundled/models/har/har.js')
  const { log } = new HARFormat.HARRoot(JSON.parse(text))
  return Promise.all(Importer.Importer.requestsFromHARLog(log).map(async one => ({
    url: one.url(), method: one.requestMethod, status: one.statusCode, mimeType: one.mimeType,
    size: one.resourceSize, ms: 1000 * one.duration,
    sent: await one.requestFormData(), received: (await one.requestContentData()).text,
  })))
}`

test.runIf(needs('chromium'))('Chromium imports the file', async () => {
  const path = join(folder, 'all.har')
  await inspect('har', '--out', path)
  const text = readFileSync(path, 'utf8')
  const browser = await Browser.open()
  try {
    const page = await browser.page('devtools://devtools/bundled/devtools_app.html')
    await page.until(`location.protocol === 'devtools:'`)
    const [{ request, response, time }] = JSON.parse(text).log.entries
    const [imported, ...others] = await page.value<Record<string, unknown>[]>(`(${IMPORTED})(${JSON.stringify(text)})`)
    expect(others).toEqual([])
    expect(imported).toEqual({
      ...{ url: request.url, method: 'POST', status: response.status, mimeType: 'application/json' },
      ...{ size: response.content.size, ms: expect.closeTo(time, 1) },
      ...{ sent: request.postData.text, received: response.content.text },
    })
  } finally {
    await browser.close()
  }
})

test('a file that would lack an exchange is not written', async () => {
  send()
  vi.spyOn(inspector, 'get').mockImplementationOnce(() => {
    throw new Error('not now')
  })
  const path = join(folder, 'all.har')
  expect((await inspect('har', '--out', path)).code).toBe(1)
  expect(() => statSync(path)).toThrow('ENOENT')
})

test('a binary body is marked as such in the file', async () => {
  const sink = handler(requestTo('/bytes'), DEAF)
  sink.requestData(Buffer.from([0xff, 0xfe, 0x80]))
  sink.requestEnd([])
  const path = join(folder, 'bytes.har')
  await inspect('har', '--out', path)
  const { request } = JSON.parse(readFileSync(path, 'utf8')).log.entries.at(-1)
  expect(request.postData).toMatchObject({ text: '//6A', _encoding: 'base64' })
})

test('an event stream has its size in the file, although only its events are kept, and they are shown line by line', async () => {
  const streaming = inspector.layer((_, response) => {
    response.responseHead({ status: 200, headers: ['content-type', 'text/event-stream'], bodyBytes: -1 })
    response.responseData(Buffer.from('data: 1\ndata: 2\n\n'))
    response.responseEnd([])
    return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
  })
  streaming(requestTo('/events'), DEAF).requestEnd([])
  const path = join(folder, 'events.har')
  await inspect('har', '--out', path)
  const { response, _id: id } = JSON.parse(readFileSync(path, 'utf8')).log.entries.at(-1)
  expect(response).toMatchObject({ bodySize: 17, content: { size: 17 } })
  expect((await inspect('show', id)).out).toMatch(/^< .* event {2}data: 1\ndata: 2$/m)
})

test('the line for curl is one command, whatever the exchange contains', async () => {
  const { out } = await inspect('curl', inspector.list()[0]!.id)
  expectHarmless(out)
  // The shell prints the words that it sees.
  const { stdout } = spawnSync('bash', ['-c', `curl() { printf '%s\\0' "$@"; }\n${out}`], { cwd: folder })
  const words = stdout.toString('utf8').split('\0')
  expect(words.slice(0, 4)).toEqual(['--globoff', '--path-as-is', '-X', 'POST'])
  expect(words).toContain(`x-evil: ${EVIL}`)
  expect(words[words.indexOf('--data-raw') + 1]).toContain(JSON.stringify(EVIL))
})

test('the line for curl of a HEAD request waits for no body', async () => {
  handler({ ...requestTo('/head'), method: 'HEAD' }, DEAF).requestEnd([])
  const { out } = await inspect('curl', inspector.list().at(-1)!.id)
  expect(out).toMatch(/^curl --globoff --path-as-is --head 'http/)
})

test('the router cannot reach an admin listener of its own process, by whatever name', async () => {
  const port = new URL(url).port
  const status = (host: string) =>
    new Promise<number>(resolve => {
      const { handler: forward, close } = createForwarder(`http://${host}:${port}`)
      const sink = forward(
        {
          ...{ method: 'GET', authority: 'localhost', path: '/livez', headers: [], bodyBytes: 0, upgrade: false },
          ...{ peerAddress: '127.0.0.1', encrypted: false, caller: undefined, requestId: 'r', exchangeId: undefined },
        },
        {
          ...DEAF,
          responseHead: head => resolve(head.status),
          responseEnd: close,
        },
      )
      sink.requestEnd([])
    })
  expect(await status('127.0.0.1')).toBe(502)
  expect(await status('localhost')).toBe(502)
  expect(await status('[::ffff:127.0.0.1]')).toBe(502)
  // The process's other listeners stay reachable.
  await close()
  const other = createServer((_, response) => void response.writeHead(204).end())
  await new Promise<void>(resolve => other.listen(Number(port), '127.0.0.1', resolve))
  expect(await status('127.0.0.1')).toBe(204)
  other.closeAllConnections()
  await new Promise(resolve => other.close(resolve))
})

type Shape = string | readonly Shape[] | { readonly [member: string]: Shape }

/** What is missing or has another type than in the specification. */
function harProblems(har: unknown): string[] {
  const problems: string[] = []
  const check = (value: unknown, shape: Shape, at: string): void => {
    if (typeof shape === 'string') {
      const optional = shape.endsWith('?')
      if (value === undefined ? !optional : typeof value !== shape.replace('?', '')) problems.push(`${at}: ${shape}`)
    } else if (Array.isArray(shape)) {
      if (!Array.isArray(value)) problems.push(`${at}: array`)
      else for (const [i, item] of value.entries()) check(item, shape[0] ?? {}, `${at}[${i}]`)
    } else if (typeof value !== 'object' || value === null) problems.push(`${at}: object`)
    else {
      for (const [name, inner] of Object.entries(shape))
        check((value as Record<string, unknown>)[name], inner, `${at}.${name}`)
      const strange = Object.keys(value).filter(name => !(name in shape) && !/^_|^comment$/.test(name))
      problems.push(...strange.map(name => `${at}.${name}: unknown`))
    }
  }
  const pair = { name: 'string', value: 'string' }
  const message = { httpVersion: 'string', cookies: [pair], headers: [pair], headersSize: 'number', bodySize: 'number' }
  const content = { size: 'number', compression: 'number?', mimeType: 'string', text: 'string?', encoding: 'string?' }
  const timings = {
    ...{ blocked: 'number?', dns: 'number?', connect: 'number?', ssl: 'number?' },
    ...{ send: 'number', wait: 'number', receive: 'number' },
  }
  const postData = { mimeType: 'string', params: [pair], text: 'string' }
  const entry = {
    ...{ startedDateTime: 'string', time: 'number', cache: {}, timings },
    request: { ...message, method: 'string', url: 'string', queryString: [pair], postData },
    response: { ...message, status: 'number', statusText: 'string', redirectURL: 'string', content },
  }
  const creator = { name: 'string', version: 'string' }
  check(har, { log: { version: 'string', creator, pages: [{}], entries: [entry] } }, 'har')
  return problems
}
