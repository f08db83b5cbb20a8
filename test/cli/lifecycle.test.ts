import { readFileSync, writeFileSync } from 'node:fs'
import { beforeEach, describe, expect, test } from 'vitest'
import { needs } from '../support/needs.ts'
import { Redis } from '../support/redis.ts'
import { until } from '../support/until.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { LogLine, Running } from './process.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine

beforeEach(() => writeFileSync(file('revoked.json'), ''))

/** With a directory they share revocations. */
const OWN_REVOCATIONS = () => ['--auth.revocations.file', file('revoked.json')]

function startServer(...more: string[]): Running {
  return startServerWith([...OWN_REVOCATIONS(), ...more])
}

const startServerWith = (more: readonly string[]) => machine.start(machine.serverArgs(...more))

async function startClient(server: Running, runtime: string, ...others: Running[]): Promise<Running> {
  await machine.writeToken(`token-${runtime}`, { runtime, id: `token-of-${runtime}` })
  const client = machine.start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
    ...(await Promise.all(others.map(async other => ['--server', `wss://${await other.address('control')}`]))).flat(),
    ...['--token.file', file(`token-${runtime}`), '--target', 'http://127.0.0.1:9', ...ADMIN],
  ])
  await client.line(line => line.msg === 'connected' && line.connection === 0)
  await client.line(line => line.msg === 'connected' && line.connection === 1)
  return client
}

/** A command that an operator types on the server's machine; others may run servers here, too. */
async function typeOn(server: Running, ...words: string[]) {
  return await sallyport([...words, '--admin', `http://${await server.address('admin')}`], {
    environment: machine.environment,
  })
}

/** The same; fails the test unless it ends with 0. */
async function type(server: Running, ...words: string[]): Promise<string> {
  const { code, out, notes } = await typeOn(server, ...words)
  expect([code, notes]).toEqual([0, ''])
  return out
}

/** What the server's log says about `action`, once it does: the answer to a command may come first. */
async function audits(server: Running, action: string) {
  const says = (line: LogLine) => line.audit === true && line.action === action
  await server.line(says)
  return server.lines.filter(says)
}

/** Resolves once `holds`. */
interface Listed {
  readonly id: string
  readonly replica: string
  readonly runtime: string
}

const list = async (server: Running, ...more: string[]) =>
  JSON.parse(await type(server, 'sessions', 'list', '--json', ...more)) as readonly Listed[]

describe('commands for sessions, tokens and drains', () => {
  test('sessions and runtimes are listed, shown, and found by the beginning of an id', async () => {
    const server = startServer('--replica', 'north')
    await startClient(server, 'demo')
    await startClient(server, 'other')
    expect((await list(server)).map(({ runtime }) => runtime).sort()).toEqual(['demo', 'demo', 'other', 'other'])
    const [session] = await list(server, '--runtime', 'demo')
    expect(await type(server, 'sessions', 'list', '--runtime', 'demo')).toMatch(
      new RegExp(`^SESSION +RUNTIME +INSTANCE .*\\n(.*\\n)*${session!.id.slice(0, 8)} +demo +`),
    )
    expect(await type(server, 'sessions', 'show', '--session', session!.id.slice(0, 8))).toContain(`${session!.id}\n`)
    expect(await type(server, 'runtimes', 'list')).toMatch(
      /^RUNTIME +REPLICA +SESSIONS .*\n(demo|other) +north +2 +1 +/,
    )
    expect(await typeOn(server, 'sessions', 'show', '--session', 'nobody')).toMatchObject({ code: 1 })
    expect(await type(server, 'status')).toMatch(/^server .*: ready.*\n {2}replica north: 2 runtimes, 4 sessions, /m)
  })

  test('a pause that no inbox has accepted is an error', async () => {
    const server = startServer()
    await server.address('public')
    const answer = { code: 1, out: '', notes: 'sallyport: no server with an inbox answered\n' }
    expect(await typeOn(server, 'inbox', 'pause', '--runtime', 'demo')).toEqual(answer)
  })

  test('a drain moves each session to a new one before the old one is left', async () => {
    const server = startServer()
    const client = await startClient(server, 'demo')
    const before = (await list(server)).map(({ id }) => id)
    const out = await type(server, 'sessions', 'drain', '--runtime', 'demo', '--reason', 'spring cleaning')
    for (const id of before) expect(out).toContain(`session ${id} on replica `)
    for (const id of before) {
      await client.line(line => line.msg === 'disconnected' && line.session === id && line.reason === 'spring cleaning')
    }
    const after = (await list(server)).map(({ id }) => id)
    expect(after.length).toBeGreaterThanOrEqual(2)
    expect(after.filter(id => before.includes(id))).toEqual([])
    expect(await audits(server, '/sessions/drain')).toMatchObject([
      { who: expect.stringContaining('@'), from: '127.0.0.1', body: { runtime: 'demo', reason: 'spring cleaning' } },
    ])
  })

  test('a session is closed, and its client reconnects', async () => {
    const server = startServer()
    const client = await startClient(server, 'demo')
    const [session] = await list(server)
    await type(server, 'sessions', 'close', '--session', session!.id)
    await client.line(line => line.msg === 'disconnected' && line.session === session!.id)
    await client.line(line => line.msg === 'connected' && client.lines.indexOf(line) > 3)
    expect(await audits(server, '/sessions/close')).toMatchObject([{ body: { session: session!.id } }])
    const again = await typeOn(server, 'sessions', 'close', '--session', session!.id)
    expect(again).toMatchObject({ code: 1, notes: `sallyport: there is no session ${session!.id}\n` })
    expect((await typeOn(server, 'sessions', 'close', '--runtime', 'nobody')).code).toBe(1)
    expect((await typeOn(server, 'sessions', 'close')).code).toBe(2)
  })

  test('a revocation ends sessions at once, keeps the token out, and survives a restart', async () => {
    const server = startServer()
    const [good, bad] = [await startClient(server, 'demo'), await startClient(server, 'other')]
    const out = await type(server, 'revoke', '--jti', 'token-of-other', '--until', '+90d')
    expect(out).toMatch(
      /^revoked on replica \S+: 2 sessions ended; kept across restarts\nthe token token-of-other; undo it/,
    )
    await bad.line(line => line.msg.startsWith('the server refused this client'))
    expect((await list(server)).map(({ runtime }) => runtime)).toEqual(['demo', 'demo'])
    expect(good.lines.some(line => line.msg === 'disconnected')).toBe(false)
    expect(readFileSync(file('revoked.json'), 'utf8')).toContain('token-of-other')
    expect(await audits(server, '/revoke')).toMatchObject([{ body: { tokenId: 'token-of-other' } }])
    await server.end('SIGTERM')
    const next = startServer()
    await machine.writeToken('token-other', { runtime: 'other', id: 'token-of-other' })
    const refused = machine.start([
      ...['client', '--server', `wss://${await next.address('control')}`, '--ca', file('ca.pem'), '--exit-on-refusal'],
      ...['--token.file', file('token-other'), '--target', 'http://127.0.0.1:9', ...ADMIN],
    ])
    expect(await refused.end()).toBe(4)
  })

  test('a drained server is not ready and empties, but keeps running', async () => {
    const server = startServer('--health.listen', '127.0.0.1:0')
    const client = await startClient(server, 'demo')
    expect(await type(server, 'drain')).toMatch(
      /^replica \S+ is draining: not ready, no new connections, 2 sessions asked to move\n$/,
    )
    await client.line(line => line.msg === 'disconnected')
    expect((await fetch(`http://${await server.address('health')}/readyz`)).status).toBe(503)
    expect((await fetch(`http://${await server.address('health')}/livez`)).status).toBe(200)
    expect(await audits(server, '/drain')).toHaveLength(1)
    expect(await server.end('SIGTERM')).toBe(0)
  })
})

describe('several instances of a runtime', () => {
  test('a superseded instance is a standby: it stays ready, and status shows it', async () => {
    const server = startServer()
    const first = await startClient(server, 'demo')
    await startClient(server, 'demo')
    await first.line(line => line.msg === 'this instance is a standby')
    const admin = await first.address('admin')
    expect((await fetch(`http://${admin}/readyz`)).status).toBe(200)
    expect(await (await fetch(`http://${admin}/metrics`)).text()).toMatch(/^sallyport_active 0$/m)
    const { out } = await typeOn(first, 'status')
    expect(out).toMatch(
      /^ {2}runtime demo, instance [0-9a-f]{8}: standby \(another instance gets the traffic\), epoch 1$/m,
    )
    expect(out).toMatch(/^ {2}CONN +SESSION +REPLICA +STATE +AGE +ROUND TRIP +STREAMS +BUFFERED/m)
  })

  test('an instance whose routes do not load never takes over: it exits before it dials', async () => {
    const server = startServer()
    const first = await startClient(server, 'demo')
    writeFileSync(file('bad.yaml'), 'routes: [{ name: x, match: { path: x } }]\n')
    const bad = machine.start([
      ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
      ...['--token.file', file('token-demo'), '--routes', file('bad.yaml'), ...ADMIN],
    ])
    expect(await bad.end()).toBe(3)
    expect(await list(server)).toHaveLength(2)
    expect(first.lines.some(line => line.msg === 'this instance is a standby')).toBe(false)
  })
})

test.each(['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const)('%s ends no service, and opens no debugger', async signal => {
  const server = startServer('--drain-delay', '1h')
  await server.address('public')
  const saidOf = (one: string) => server.lines.filter(line => line.signal === one).map(({ msg }) => msg)
  const nothing = 'this signal does nothing: changed files are reloaded automatically'
  server.kill(signal)
  await server.line(() => saidOf(signal).length === 1)
  server.kill('SIGTERM')
  await server.line(() => saidOf('SIGTERM').length === 1)
  server.kill(signal)
  await server.line(() => saidOf(signal).length === 2)
  expect(saidOf(signal)).toEqual([nothing, nothing])
  expect(await server.end('SIGTERM')).toBe(1)
  expect(server.text).not.toContain('ebugger')
})

test("a runtime's tokens are revoked up to now; revocations are listed and removed", async () => {
  const server = startServer()
  await startClient(server, 'demo')
  const { code, out, notes } = await typeOn(server, 'revoke', '--runtime', 'demo')
  expect([code, notes]).toEqual([0, expect.stringContaining('the rule never expires')])
  const id = /revocations remove ([0-9a-f]{12})\n$/.exec(out)![1]!
  await until(async () => (await list(server)).length === 0)
  // A token that is issued once the command has ended is accepted.
  await startClient(server, 'demo')
  expect((await typeOn(server, 'revocations', 'remove', '')).notes).toBe('sallyport: there is no revocation \n')
  await type(server, 'revoke', '--runtime', 'other', '--future', '--until', '+1d')
  const shown = (await type(server, 'revocations', 'list')).split('\n')
  expect(shown).toHaveLength(4)
  expect(shown[1]).toMatch(new RegExp(`^${id} +tokens of demo issued before 20\\S+ +no end +file `))
  expect(shown[2]).toMatch(/^[0-9a-f]{12} +tokens of other, including later ones +20\S+ +file /)
  expect(await type(server, 'revocations', 'remove', id.slice(0, 8))).toMatch(/^removed on replica \S+: tokens of demo/)
  expect((await type(server, 'revocations', 'list')).split('\n')).toHaveLength(3)
  expect(readFileSync(file('revoked.json'), 'utf8')).not.toContain('demo')
  expect(await audits(server, '/revocations/remove')).toMatchObject([{ body: { id } }])
  expect((await typeOn(server, 'revocations', 'remove', id)).notes).toBe(`sallyport: there is no revocation ${id}\n`)
  expect((await typeOn(server, 'revocations', 'remove')).code).toBe(2)
})

describe.runIf(needs('redis'))('with two replicas', () => {
  test('each lists and changes the sessions of both, and a revocation applies to both', async () => {
    const redis = await Redis.start()
    try {
      const both = ['north', 'south'].map(name => startServerWith(['--replica', name, '--directory', redis.url]))
      const [north, south] = [both[0]!, both[1]!]
      const client = await startClient(north, 'demo', south)
      const before = await list(north)
      expect(before.map(({ replica }) => replica).sort()).toEqual(['north', 'south'])
      expect(await type(south, 'runtimes', 'list')).toMatch(
        /demo +south .*\n.*demo +north |demo +north .*\n.*demo +south /,
      )
      const out = await type(north, 'sessions', 'drain', '--runtime', 'demo')
      for (const { id, replica } of before) {
        expect(out).toContain(`session ${id} on replica ${replica}: asked to move\n`)
        await client.line(line => line.msg === 'disconnected' && line.session === id)
      }
      expect(await audits(south, '/sessions/drain')).toMatchObject([{ from: expect.stringMatching(/^north~/) }])
      const moved = before.map(({ id }) => id)
      await until(async () => (await list(north)).filter(({ id }) => !moved.includes(id)).length === 2)
      await type(south, 'revoke', '--runtime', 'demo', '--future', '--until', '+1d')
      await client.line(line => line.msg.startsWith('the server refused this client'))
      await until(async () => (await list(north)).length === 0)
      await until(async () => client.lines.filter(line => line.msg === 'disconnected').length >= 4)
      const [row] = JSON.parse(await type(north, 'revocations', 'list', '--json')).revocations
      expect(row).toMatchObject({ runtime: 'demo', replicas: ['north', 'south'] })
      expect(await type(north, 'revocations', 'remove', row.id)).toContain('removed on replica north')
      expect(await type(south, 'revocations', 'list')).toBe('no revocations\n')
      expect(await type(north, 'drain', '--replica', 'south')).toMatch(/^replica south is draining: /)
      const drains = await Promise.all([audits(north, '/drain'), audits(south, '/drain')])
      expect(drains.map(({ length }) => length)).toEqual([1, 1])
      const nowhere = await typeOn(north, 'drain', '--replica', 'west')
      expect([nowhere.code, nowhere.notes]).toEqual([1, expect.stringContaining('no replica west answered')])
      await redis.kill()
      for (const noun of ['sessions', 'runtimes', 'revocations']) {
        expect((await typeOn(north, noun, 'list')).notes).toMatch(/^not all replicas: /)
      }
    } finally {
      await machine.end()
      await redis.stop()
    }
  })
})
