/**
 * Webhooks through every outage, with processes as they are deployed: what was answered 2xx arrives, each lane in its
 * order, and what is not kept was not answered so. After each, the file passes SQLite's own check.
 */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createSigner } from '../../protocol/webhook/sign.ts'
import { Running } from '../cli/process.ts'
import { unhurried } from '../support/busy.ts'
import { EventSources } from '../support/event-sources.ts'
import { GO_BUILD_MS } from '../support/go.ts'
import { long, needs } from '../support/needs.ts'
import { Postgres } from '../support/postgres.ts'
import { makeSecrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'

/** A sender waits this long, and never sends again. */
const PATIENCE_MS = unhurried(10_000)
const LANES = 16
/** All of ten minutes at 50 a second, and a fiftieth of it. */
const AWAY = long ? 30_000 : 600
const KILLS = long ? 20 : 2

interface Sent {
  readonly lane: number
  readonly body: string
  /** 0 if there was none. */
  readonly status: number
  readonly ms: number
}

let folder: string
let upstream: Server
let says: () => number
let got: string[]
let sent: Sent[]
let running: Running[]
let secrets: Awaited<ReturnType<typeof makeSecrets>>
/** What is sent, at `/webhooks/LANE`. */
let webhook: (lane: number, name: string, bytes: number) => { body: string; headers: Record<string, string> }
const file = (name: string) => join(folder, name)

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-outage-'))
  mkdirSync(file('data'))
  says = () => 200
  got = []
  sent = []
  running = []
  webhook = (_lane, name, bytes) => ({ body: `${name} ${'x'.repeat(bytes)}`, headers: { 'x-github-delivery': name } })
  upstream = createServer((asked, answer) => {
    let body = ''
    asked.on('data', chunk => {
      body += chunk
    })
    asked.on('end', () => {
      const status = says()
      if (status === 200) got.push(body.slice(0, body.indexOf(' ')))
      if (status !== 0) answer.writeHead(status).end()
    })
  })
  upstream.listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  secrets = await makeSecrets()
  writeFileSync(file('ca.pem'), secrets.ca)
  writeFileSync(file('server.pem'), secrets.server.cert)
  writeFileSync(file('server-key.pem'), secrets.server.key, { mode: 0o600 })
  writeFileSync(file('jwks.json'), JSON.stringify(secrets.jwks))
  writeFileSync(file('token'), await secrets.token('demo'))
  const { port } = upstream.address() as AddressInfo
  writeFileSync(
    file('routes.yaml'),
    `routes:
  - name: hooks
    match: { path: '/webhooks/{name}', methods: [POST] }
    target: 'http://127.0.0.1:${port}'
    inbox: { mode: fallback, answerWithin: 2s }
`,
  )
})
afterEach(async () => {
  for (const one of running) await one.end('SIGKILL')
  upstream.closeAllConnections()
  upstream.close()
  rmSync(folder, { recursive: true, force: true })
})

function run(args: readonly string[], environment: Record<string, string> = {}): Running {
  const one = new Running([...args, '--admin.listen', 'off'], environment)
  running.push(one)
  return one
}

interface Edge {
  server: Running
  readonly port: number
  readonly control: string
  restart(): Promise<void>
}

async function startEdge(inbox: readonly string[], environment?: Record<string, string>): Promise<Edge> {
  const start = (publicAt: string, control: string) =>
    run(
      [
        ...['server', '--public.listen', publicAt, '--control.listen', control, '--domain', 'tunnels.test'],
        ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
        ...['--auth.jwks.file', file('jwks.json'), '--inbox.disk-free', '0', '--inbox.messages-per-lane', '10000'],
        ...[
          '--inbox.messages-per-runtime',
          '100000',
          ...inbox,
          '--inbox.unverified-per-minute',
          '0',
          '--hold.time',
          '0s',
        ],
      ],
      environment,
    )
  const server = start('127.0.0.1:0', '127.0.0.1:0')
  const [publicAt, control] = [await server.address('public'), await server.address('control')]
  const edge: Edge = {
    server,
    port: Number(publicAt.split(':')[1]),
    control,
    async restart() {
      await edge.server.end('SIGKILL')
      edge.server = start(publicAt, control)
      await edge.server.address('public')
    },
  }
  return edge
}

async function startClient(edge: Edge): Promise<Running> {
  const client = run([
    ...['client', '--server', `wss://${edge.control}`, '--ca', file('ca.pem'), '--token.file', file('token')],
    ...['--routes', file('routes.yaml'), '--inbox.key.file', file('inbox-key.pem')],
  ])
  await client.line(line => line.msg === 'connected')
  return client
}

async function leave(edge: Edge, client: Running): Promise<void> {
  await client.end('SIGKILL')
  await edge.server.line(line => line.msg === 'session ended')
}

/** One webhook, as GitHub sends it: once, with ten seconds for the answer. */
function send(edge: Edge, lane: number, bytes = 200, name = `${lane}-${sent.length}`): Promise<Sent> {
  const { body, headers } = webhook(lane, name, bytes)
  const startedMs = performance.now()
  return new Promise(done => {
    const over = (status: number) => {
      const one = { lane, body: name, status, ms: performance.now() - startedMs }
      sent.push(one)
      done(one)
    }
    const options = {
      port: edge.port,
      host: '127.0.0.1',
      path: `/webhooks/${lane}`,
      method: 'POST',
      headers: { host: 'demo.tunnels.test', 'content-length': body.length, ...headers },
      agent: false,
    }
    const asked = request({ ...options, timeout: PATIENCE_MS }, answer => {
      answer.resume().once('close', () => over(answer.statusCode!))
    })
    asked.on('timeout', () => asked.destroy())
    asked.once('error', () => over(0))
    asked.end(body)
  })
}

/** Senders, one per lane, each of which sends the next webhook when this one was answered. */
async function load(edge: Edge, more: () => boolean, bytes?: number, lanes = LANES): Promise<void> {
  const each = async (lane: number) => {
    while (more()) {
      const { status } = await send(edge, lane, bytes)
      // Nobody listens: pause before the next one, instead of spinning.
      if (status === 0) await new Promise(done => setTimeout(done, 20))
    }
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => each(lane)))
}

const accepted = () => sent.filter(({ status }) => status >= 200 && status < 300)

/** What was accepted arrives; the first of each, in the order in which the lane was answered. */
async function arrives(what: string): Promise<void> {
  const missing = () => {
    const here = new Set(got)
    return new Set(accepted().flatMap(({ body }) => (here.has(body) ? [] : [body]))).size
  }
  // As long as some come.
  for (let left = missing(); left > 0; left = missing()) {
    const enough = got.length + Math.min(left, 100)
    await until(() => got.length >= enough)
  }
  const firsts = [...new Set(got)]
  for (let lane = 0; lane < LANES; lane++) {
    const told = new Set(accepted().flatMap(one => (one.lane === lane ? [one.body] : [])))
    expect(firsts.filter(body => told.has(body))).toEqual([...told])
  }
  const report = { what, sent: sent.length, accepted: accepted().length, lost: 0, twice: got.length - firsts.length }
  if (long) console.log(JSON.stringify(report))
}

/** SQLite's own, for a copy, which includes the log. */
function isWhole(path: string): void {
  for (const end of ['', '-wal']) if (existsSync(path + end)) copyFileSync(path + end, file('copy.db') + end)
  const copy = new DatabaseSync(file('copy.db'))
  expect(copy.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
  copy.close()
}

const SLOW = { tags: ['slow'], ...(long ? { timeout: 900_000 } : {}) }

test('the client is offline for as long as 50 a second take ten minutes', SLOW, async () => {
  const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
  await leave(edge, await startClient(edge))
  await load(edge, () => sent.length < AWAY)
  expect(sent.filter(({ status }) => status !== 202)).toEqual([])
  await startClient(edge)
  await arrives('client away')
  expect(got.length).toBe(sent.length)
  await edge.server.end('SIGKILL')
  isWhole(file('data/inbox.db'))
})

test('the server is killed under load, while its receiver fails now and then', SLOW, async () => {
  const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
  await startClient(edge)
  let over = false
  let turn = 0
  says = () => (++turn % 7 === 0 ? 503 : 200)
  const loading = load(edge, () => !over)
  for (let kill = 0; kill < KILLS; kill++) {
    const enough = accepted().length + 50 + 100 * Math.random()
    await until(() => accepted().length > enough)
    await edge.restart()
  }
  over = true
  await loading
  says = () => 200
  await arrives('server killed')
  await edge.server.end('SIGKILL')
  isWhole(file('data/inbox.db'))
})

test.runIf(needs('root') && process.platform === 'linux')('the disk fills up, and has room again', SLOW, async () => {
  mkdirSync(file('disk'))
  const mount = (options: string) => spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', file('disk')]).status
  expect(mount('size=4m')).toBe(0)
  try {
    const edge = await startEdge(['--inbox', `sqlite:${file('disk/inbox.db')}`])
    await leave(edge, await startClient(edge))
    await load(edge, () => sent.filter(({ status }) => status === 503).length < 50, 4000)
    expect(new Set(sent.map(({ status }) => status))).toEqual(new Set([202, 503]))
    expect(mount('remount,size=32m')).toBe(0)
    const before = sent.length
    await load(edge, () => sent.length < before + 50, 4000)
    expect(sent.slice(before).filter(({ status }) => status !== 202)).toEqual([])
    await startClient(edge)
    await arrives('disk full')
    await edge.server.end('SIGTERM')
    isWhole(file('disk/inbox.db'))
  } finally {
    spawnSync('umount', ['-l', file('disk')])
  }
})

describe.runIf(needs('gcc'))('a disk that fails', () => {
  test.each(['write', 'sync'])('%s: 503, the log says so, and it works again when the disk does', SLOW, async how => {
    const source = resolve(import.meta.dirname, '../support/failing-disk.c')
    const library = file('failing-disk.so')
    expect(spawnSync('gcc', ['-shared', '-fPIC', '-o', library, source, '-ldl'], { encoding: 'utf8' }).stderr).toBe('')
    const environment = { LD_PRELOAD: library, FAILING_DISK: file('failing') }
    const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`], environment)
    await leave(edge, await startClient(edge))
    let over = false
    const loading = load(edge, () => !over)
    for (let turn = 0; turn < KILLS; turn++) {
      await until(() => accepted().length > 50 * (turn + 1))
      writeFileSync(file('failing'), how)
      const from = sent.length
      await until(() => sent.slice(from).filter(({ status }) => status === 503).length > 20)
      rmSync(file('failing'))
      const then = accepted().length
      await until(() => accepted().length > then + 50)
    }
    over = true
    await loading
    expect(edge.server.text).toContain('the store of the inbox is away')
    await startClient(edge)
    await arrives(`disk fails: ${how}`)
    await edge.server.end('SIGKILL')
    isWhole(file('data/inbox.db'))
  })
})

describe.runIf(needs('postgres'))('in PostgreSQL', () => {
  let postgres: Postgres
  beforeEach(async () => {
    postgres = await Postgres.start()
  })
  afterEach(() => postgres.stop())

  test.runIf(needs('root') && process.platform === 'linux')('its disk fills up, and has room again', SLOW, async () => {
    mkdirSync(file('disk'))
    const mount = (options: string) => spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', file('disk')]).status
    expect(mount('size=96m')).toBe(0)
    let small: Postgres | undefined
    try {
      // Of another user.
      chmodSync(folder, 0o711)
      small = await Postgres.start({ under: file('disk') })
      const edge = await startEdge(['--inbox', small.url])
      await leave(edge, await startClient(edge))
      await load(edge, () => sent.filter(({ status }) => status === 503).length < 50, 100_000)
      expect(new Set(sent.map(({ status }) => status))).toEqual(new Set([202, 503]))
      expect(mount('remount,size=512m')).toBe(0)
      await small.start()
      const then = accepted().length
      await load(edge, () => accepted().length < then + 50, 4000)
      await startClient(edge)
      await arrives('disk of PostgreSQL full')
    } finally {
      await small?.stop()
      spawnSync('umount', ['-l', file('disk')])
    }
  })

  test('it and the server are killed under load', SLOW, async () => {
    const edge = await startEdge(['--inbox', postgres.url])
    await leave(edge, await startClient(edge))
    let over = false
    const loading = load(edge, () => !over)
    for (let turn = 0; turn < KILLS; turn++) {
      const before = accepted().length
      await until(() => accepted().length > before + 100)
      if (turn % 2 === 0) {
        await postgres.kill()
        await postgres.start()
      } else await edge.restart()
    }
    over = true
    await loading
    await startClient(edge)
    await arrives('PostgreSQL killed')
  })
})

describe.runIf(needs('new-go', 'netns'))("Argo Events' own handlers, which check signatures", () => {
  const KINDS = ['github', 'gitlab'] as const
  const SECRET = 's3cret'
  const signers = KINDS.map(scheme => createSigner({ scheme }, readSecret({ scheme }, Buffer.from(SECRET))))
  let sources: EventSources
  beforeAll(async () => {
    sources = await EventSources.build(SECRET)
  }, GO_BUILD_MS)
  afterAll(() => sources.remove())
  beforeEach(async () => {
    sources.events.length = 0
    await sources.start()
    const routes = await Promise.all(
      KINDS.map(async (kind, lane) => ({
        name: kind,
        match: { path: `/webhooks/${lane}`, methods: ['POST'] },
        rewrite: { replacePrefix: { from: `/webhooks/${lane}`, to: `/hooks/${kind}` } },
        target: `http://127.0.0.1:${await sources.port(kind)}`,
        inbox: { mode: 'fallback', answerWithin: '2s' },
      })),
    )
    // It is YAML, too.
    writeFileSync(file('routes.yaml'), JSON.stringify({ routes }))
    webhook = (lane, name, bytes) => {
      // As nothing that had parsed it would write it.
      const body = `{ "a" : "\\u00e4", "n": 1.0, "id":"${name}", "filler":"${'x'.repeat(bytes)}" }`
      const signed = signers[lane]!.sign([Buffer.from(body)], { id: name, timestamp: 0 })
      const headers: Record<string, string> = { 'content-type': 'application/json' }
      if (lane === 0) Object.assign(headers, { 'x-github-event': 'push', 'x-github-delivery': name })
      else Object.assign(headers, { 'x-gitlab-event': 'Push Hook', 'x-gitlab-event-uuid': name })
      for (let i = 0; i < signed.length; i += 2) headers[signed[i]!] = signed[i + 1]!
      return { body, headers }
    }
  })
  afterEach(() => sources.end())

  /** Into `got`, in order; a repeat must be marked as a retry. */
  function events(): void {
    got = sources.events.map(({ id, attempt }, index) => {
      const isFirst = sources.events.findIndex(event => event.id === id) === index
      if (!isFirst) expect([id, attempt]).toEqual([id, expect.toSatisfy(value => value >= 2)])
      return id
    })
  }
  async function recorded(what: string): Promise<void> {
    await until(() => {
      const here = new Set(sources.events.map(({ id }) => id))
      return accepted().every(({ body }) => here.has(body))
    }, what)
    events()
    await arrives(what)
  }

  test('the client is offline: all arrive, in order, none twice', SLOW, async () => {
    const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
    await leave(edge, await startClient(edge))
    await load(edge, () => sent.length < AWAY / 4, 200, KINDS.length)
    expect(sent.filter(({ status }) => status !== 202)).toEqual([])
    await startClient(edge)
    await recorded('Argo Events, client away')
    expect(got).toHaveLength(sent.length)
  })

  test.each(['server', 'receiver'])('the %s is killed under load: every repeat is marked', SLOW, async what => {
    const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
    await startClient(edge)
    let over = false
    const loading = load(edge, () => !over, 200, KINDS.length)
    for (let kill = 0; kill < KILLS; kill++) {
      const enough = accepted().length + 20 + 50 * Math.random()
      await until(() => accepted().length > enough)
      if (what === 'server') await edge.restart()
      else {
        await sources.end()
        const from = sent.length
        await until(() => sent.length > from + 10)
        await sources.start()
      }
    }
    over = true
    await loading
    await recorded(`Argo Events, ${what} killed`)
    // Each lane has one in progress, and its sender another one.
    expect(got.length - new Set(got).size).toBeLessThanOrEqual(2 * KINDS.length * KILLS)
  })
})

/** What GitLab counts against a hook, 4xx, 5xx and time-outs alike: after four in a row it disables the hook. */
const counted = () => sent.filter(({ status }) => status < 200 || status >= 400).length

test('GitHub gets a 2xx within 10 s in every row of the table, and GitLab counts no failure', SLOW, async () => {
  const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
  const { port } = upstream.address() as AddressInfo
  const client = await startClient(edge)
  const answers = (status: number) => () => {
    says = () => status
  }
  const rows: [what: string, make: () => unknown][] = [
    ['all is well', () => {}],
    ...[500, 502, 503, 504, 408, 425, 429].map((status): [string, () => void] => [String(status), answers(status)]),
    ['no answer', answers(0)],
    [
      'nobody listens',
      () => {
        upstream.close()
        upstream.closeAllConnections()
      },
    ],
    ['no session', () => leave(edge, client)],
    ['the server is another one', () => edge.restart()],
  ]
  for (const [lane, [what, make]] of rows.entries()) {
    await make()
    // One in its own lane, and one behind it.
    for (let i = 0; i < 2; i++) {
      const { status, ms } = await send(edge, lane)
      expect([what, status]).toEqual([what, lane === 0 ? 200 : 202])
      expect(ms).toBeLessThan(PATIENCE_MS)
    }
  }
  expect(counted()).toBe(0)
  says = () => 200
  upstream.listen(port, '127.0.0.1')
  await startClient(edge)
  await arrives('senders')
})

test('without an inbox GitLab disables the hook', SLOW, async () => {
  const edge = await startEdge(['--inbox', 'off'])
  await leave(edge, await startClient(edge))
  for (let i = 0; i < 4; i++) await send(edge, 0)
  expect(counted()).toBe(4)
})

test('a sender that tries each three times by itself: the receiver gets each once', SLOW, async () => {
  const edge = await startEdge(['--inbox', `sqlite:${file('data/inbox.db')}`])
  await leave(edge, await startClient(edge))
  for (let i = 0; i < 10; i++) {
    const { body } = await send(edge, i)
    for (let again = 0; again < 2; again++) await send(edge, i, 200, body)
  }
  expect(new Set(sent.map(({ status }) => status))).toEqual(new Set([202]))
  await startClient(edge)
  await arrives('sender that tries again')
  expect(got).toHaveLength(10)
})
