/** `sallyport load-test` against a pair on loopback, as a separate process. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import type { Report } from '../../load-tests/lib/report.ts'
import { countWrong } from '../../load-tests/lib/section.ts'
import { MARK, PATHS, SMALL_BODY } from '../../load-tests/upstream/service.ts'
import { sallyport } from '../cli/run.ts'
import { type Pair, startPair } from '../support/pair.ts'

const COMMAND = resolve(import.meta.dirname, '../../bin/sallyport.js')

let folder: string
let service: ChildProcess
let direct: string
let pair: Pair
let ca: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-load-test-'))
  service = spawn(process.execPath, [COMMAND, 'load-test', '--serve', '127.0.0.1:0'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  for await (const line of createInterface({ input: service.stderr! })) {
    const [url] = /http:\/\/\S+(?=;)/.exec(line) ?? []
    if (url === undefined) continue
    direct = url
    break
  }
  pair = await startPair({ target: direct })
  ca = join(folder, 'ca.pem')
  await writeFile(ca, pair.secrets.ca)
})

afterAll(async () => {
  service.kill('SIGTERM')
  await pair.stop()
  await rm(folder, { recursive: true })
})

interface Ran {
  readonly code: number
  readonly out: string
  readonly notes: string
}

function load(args: readonly string[], during?: (child: ChildProcess) => void): Promise<Ran> {
  return new Promise(resolve => {
    const all = [COMMAND, 'load-test', '--out', folder, ...args]
    const child = execFile(process.execPath, all, (error, out, notes) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, notes }),
    )
    during?.(child)
  })
}

const through = () => [
  `https://127.0.0.1:${pair.place.port}/`,
  ...['--header', `Host: ${pair.place.authority}`, '--ca', ca],
]

const report = async (): Promise<Report> => JSON.parse(await readFile(join(folder, 'report.json'), 'utf8'))

test('loads the tunnel and the upstream alone in turn, and verifies every answer', {
  tags: ['slow'],
}, async () => {
  const { code, out, notes } = await load([...through(), '--direct', direct, '--duration', '1s', '--rate', '40'])
  expect(code, notes).toBe(0)
  expect(notes.startsWith(`target     https://127.0.0.1:${pair.place.port}/\n`)).toBe(true)
  expect(out).toContain('over direct')
  const { sections, skipped } = await report()
  expect(skipped).toEqual([])
  expect(sections.map(section => section.name)).toEqual(['small', 'webhook', 'bulk', 'websocket', 'sse'])
  for (const section of sections) {
    expect(countWrong(section), section.name).toBe(0)
    expect(section.measured.map(row => row.key)).toEqual(['tunnel', 'direct'])
  }
  const rate = sections[0]!.measured[0]!.figures.perSecond!.max
  expect(rate).toBeLessThanOrEqual(45)
})

test('--rate max is a closed loop by autocannon, and needs --yes', async () => {
  const fast = [direct, '--only', 'small', '--duration', '1s', '--rate', 'max']
  expect(await load(fast)).toMatchObject({ code: 2, notes: expect.stringContaining('needs --yes') })
  expect((await load([...fast, '--yes'])).code).toBe(0)
  expect((await report()).sections[0]!.note).toContain('not corrected for coordinated omission')
})

test('names under localhost are this machine, whatever the resolver says', { tags: ['slow'] }, async () => {
  const url = direct.replace('127.0.0.1', 'service.localhost')
  const { code, notes } = await load([url, '--direct', url, '--duration', '1s', '--rate', '30'])
  expect(code, notes).toBe(0)
  expect((await report()).sections.map(section => section.name)).toEqual([
    'small',
    'webhook',
    'bulk',
    'websocket',
    'sse',
  ])
})

test('another upstream gets only small requests, and the report says why', async () => {
  const other = createServer((_request, response) => response.writeHead(200).end('anything'))
  await new Promise<void>(resolve => other.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`
  const { code, notes } = await load([url, '--duration', '1s', '--rate', '30'])
  other.close()
  expect(code, notes).toBe(0)
  expect(notes).toContain('Not run: webhook, bulk, websocket, sse.')
  expect((await report()).sections.map(section => section.name)).toEqual(['small'])
})

describe('a failing upstream', () => {
  test('ends the run at --bailout, with exit 1 and the report', async () => {
    let asked = 0
    const failing = createServer((_request, response) => response.writeHead(++asked > 10 ? 500 : 200).end('x'))
    await new Promise<void>(resolve => failing.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(failing.address() as AddressInfo).port}/`
    const { code, notes } = await load([url, '--duration', '30s', '--rate', '100', '--bailout', '20%'])
    failing.close()
    expect(code).toBe(1)
    expect(notes).toMatch(/Stopped: small: \d+ of \d+ answers of through the tunnel were wrong/)
    expect(asked).toBeLessThan(200)
  })

  test('nothing is measured if nothing answers', async () => {
    expect(await load(['http://127.0.0.1:1/'])).toMatchObject({
      ...{ code: 1, notes: expect.stringContaining('http://127.0.0.1:1/small does not answer: connect ECONNREFUSED') },
    })
  })
})

test('a scenario that was asked for but cannot run is a failure', async () => {
  const other = createServer((_request, response) => response.writeHead(200).end('anything'))
  await new Promise<void>(resolve => other.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`
  const { code, notes } = await load([url, '--only', 'small', '--only', 'bulk'])
  other.close()
  expect(code).toBe(1)
  expect(notes).toContain('--only bulk: needs the service of `sallyport load-test --serve HOST:PORT`')
})

test('Ctrl-C ends the wait for an answer that does not end', async () => {
  const endless = createServer((_request, response) => response.writeHead(200).write('data: begun\n\n'))
  await new Promise<void>(resolve => endless.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(endless.address() as AddressInfo).port}/`
  const { code, notes } = await load([url], child => endless.once('request', () => child.kill('SIGINT')))
  endless.closeAllConnections()
  endless.close()
  expect(code).toBe(130)
  expect(notes).toContain('Stopped before the end.')
})

test('an answer that does not end is none', { tags: ['slow'] }, async () => {
  const endless = createServer((_request, response) => {
    response.writeHead(200)
    const timer = setInterval(() => response.write('data: more\n\n'), 100)
    response.once('close', () => clearInterval(timer))
  })
  await new Promise<void>(resolve => endless.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(endless.address() as AddressInfo).port}/`
  const { code, notes } = await load([url])
  endless.close()
  expect(code).toBe(1)
  expect(notes).toContain(`${url}small does not answer: no whole answer within 10 s`)
})

test.each(['bulk', 'websocket', 'sse'])(
  '%s: a service that no longer answers is a failure',
  {
    tags: ['slow'],
  },
  async name => {
    const silent = createServer((request, response) => {
      if (request.url === PATHS.small) response.setHeader(...MARK).end(SMALL_BODY)
    })
    new WebSocketServer({ server: silent, path: PATHS.echo })
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`
    const { code, notes } = await load([url, '--only', name, '--duration', '1s', '--connections', '2'])
    silent.closeAllConnections()
    silent.close()
    expect(code).toBe(1)
    expect(notes).toMatch(new RegExp(`Stopped: ${name}: 2 of 2 answers of through the tunnel were wrong`))
  },
)

test('Ctrl-C ends it at once', async () => {
  const { code, notes } = await load([direct, '--duration', '60s'], child => {
    child.stderr!.on('data', text => {
      if (String(text).includes('small')) child.kill('SIGINT')
    })
  })
  expect(code).toBe(130)
  expect(notes).toContain('Stopped before the end.')
})

test.each([
  [[], 'a URL is missing'],
  [['ftp://example.com'], 'expected an http(s) URL'],
  [['http://user:secret@example.com'], 'no password in a URL: use --header'],
  [['http://127.0.0.1:1', '--rate', '201'], 'more than 200 requests/s or 60 s needs --yes'],
  [['http://127.0.0.1:1', '--duration', '61s'], 'more than 200 requests/s or 60 s needs --yes'],
  [['http://127.0.0.1:1', '--bailout', '0%'], '--bailout: expected a percentage'],
  [['http://127.0.0.1:1', '--header', 'nonsense'], '--header: expected "NAME: VALUE"'],
  [['http://127.0.0.1:1', '--only', 'everything'], 'there are small, webhook, bulk, websocket, sse'],
])('%j is refused', async (args, sentence) => {
  const { code, notes } = await sallyport(['load-test', ...args])
  expect(code).toBe(2)
  expect(notes).toContain(sentence)
})
