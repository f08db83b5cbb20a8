/** What operators' commands do with components that do not answer, or answer strangely. */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer, type Server } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { sallyport } from './run.ts'

test('status of a missing listener', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  const { code, notes } = await sallyport(['status', '--admin', `127.0.0.1:${port}`])
  expect(code).toBe(1)
  expect(notes).toBe(`sallyport: http://127.0.0.1:${port} does not answer (ECONNREFUSED)\n`)
})

test.each([
  ['sessions close --runtime demo', { sessions: ['s'] }, 'session s on replica a: closed\n'],
  ['sessions drain --runtime demo', { sessions: ['s'] }, 'session s on replica a: asked to move\n'],
  [
    'revoke --jti x --until +1h',
    { ended: 1, kept: true },
    'revoked on replica a: 1 sessions ended; kept across restarts\nthe token x; undo it with: sallyport revocations remove 1\n',
  ],
  ['revocations remove 1', { removed: true }, 'removed on replica a: the token x\n'],
  ['inbox drop 1', { messages: ['1'] }, 'webhook 1: dropped\n'],
  ['inbox pause --runtime demo', { paused: true }, 'demo on replica a: paused\n'],
])('%s ends with 1 if a replica did not answer, and says what the others did', async (line, done, printed) => {
  const replicas = [{ replica: 'a', ...done }, { problem: 'b does not answer' }]
  const revocation = { id: '1', tokenId: 'x' }
  const answers = { replicas, revocation, revocations: [revocation] }
  const listener = createHttpServer((_request, response) => response.end(JSON.stringify(answers)))
  await once(listener.listen(0, '127.0.0.1'), 'listening')
  const { port } = listener.address() as AddressInfo
  const { code, out, notes } = await sallyport([...line.split(' '), '--admin', `127.0.0.1:${port}`])
  listener.close().closeAllConnections()
  expect([code, out, notes]).toEqual([1, printed, 'not all replicas: b does not answer\n'])
})

describe('of several components', () => {
  let folder: string
  const listeners: Server[] = []
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-status-'))
    // Where other tests' components are found.
    vi.stubEnv('TMPDIR', folder)
  })
  afterEach(() => {
    for (const listener of listeners.splice(0)) listener.close().closeAllConnections()
    rmSync(folder, { recursive: true })
    vi.unstubAllEnvs()
  })

  /** One that is found like those of this user. */
  async function found(number: number, answer: string | undefined): Promise<string> {
    const listener = createHttpServer((_request, response) => void (answer !== undefined && response.end(answer)))
    listeners.push(listener)
    await once(listener.listen(0, '127.0.0.1'), 'listening')
    const url = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`
    const file = { component: 'client', pid: process.pid, url }
    writeFileSync(join(folder, `client-${number}.json`), JSON.stringify(file), { mode: 0o600 })
    return url
  }
  const status = (...more: string[]) => sallyport(['status', ...more], { environment: { RUNTIME_DIRECTORY: folder } })
  const GOOD = JSON.stringify({ component: 'client', version: '1', ready: true, startedAt: new Date().toISOString() })

  test('a command for one of them names all of them', async () => {
    const urls = [await found(1, GOOD), await found(2, GOOD)]
    const { code, notes } = await sallyport(['inspect', 'tail'], { environment: { RUNTIME_DIRECTORY: folder } })
    expect(code).toBe(1)
    for (const url of urls) expect(notes).toContain(url)
  })

  test('status --watch goes on while a component is down, and ends for a wrong flag', async () => {
    const script = `import { status } from './cli/commands/status.ts'
      let looks = 0
      const out = text => { process.stdout.write(text); if (++looks === 2) process.exit(0) }
      const flags = new Map([['watch', ['true']], ['admin', [process.argv[1]]]])
      await status({ flags, positionals: [] }, { out, note: out, environment: {} })`
    const look = (admin: string) => {
      const args = ['--input-type=module', '-e', script, admin]
      return spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 120_000 })
    }
    const away = '127.0.0.1:9'
    const line = `sallyport: http://${away} does not answer (bad port)\n`
    expect(look(away)).toMatchObject({ status: 0, stdout: line + line })
    expect(look('ftp://x').stderr).toContain('--admin ftp://x: expected a URL')
  })

  test('ui names the runtime, replica or address of each', async () => {
    const urls = [
      await found(1, JSON.stringify({ code: 'x'.repeat(22), component: 'client', runtime: 'demo' })),
      await found(2, JSON.stringify({ code: 'x'.repeat(22), component: 'server', replica: 'eu-1' })),
      await found(3, JSON.stringify({ code: 'x'.repeat(22) })),
    ]
    const { code, out } = await sallyport(['ui'], { environment: { RUNTIME_DIRECTORY: folder } })
    expect(code).toBe(0)
    const rows = out.split('\n').map(row => row.trim().split(/ +/))
    expect(rows.slice(0, -1)).toEqual([
      ['client', 'demo', `${urls[0]}/#${'x'.repeat(22)}`],
      ['server', 'eu-1', `${urls[1]}/#${'x'.repeat(22)}`],
      ['client', '-', `${urls[2]}/#${'x'.repeat(22)}`],
    ])
  })

  test('ui links to those that answer, and names those that do not', async () => {
    const strange = await found(1, '<html>')
    const url = await found(2, JSON.stringify({ code: 'x'.repeat(22), component: 'server', replica: 'eu-1' }))
    const { code, out, notes } = await sallyport(['ui'], { environment: { RUNTIME_DIRECTORY: folder } })
    expect(out.trim().split(/ +/)).toEqual(['server', 'eu-1', `${url}/#${'x'.repeat(22)}`])
    expect(notes).toContain(`${strange} does not answer with JSON`)
    expect(code).toBe(1)
  })

  test('diag says that it asks no more than 16', async () => {
    for (let number = 1; number <= 17; number++) await found(number, GOOD)
    const diag = () =>
      sallyport(['diag', '--force', '--out', join(folder, 'd.zip')], { environment: { RUNTIME_DIRECTORY: folder } })
    expect((await diag()).notes).toContain('only 16 of 17 components here are asked; --admin URL asks another one')
    rmSync(join(folder, 'client-17.json'))
    expect((await diag()).notes).toBe('')
  })

  test('status shows those that answer, and names those that do not', async () => {
    const strange = await found(1, '<html>')
    await found(2, GOOD)
    const unread = 'http://127.0.0.1:9'
    const file = { component: 'client', pid: process.pid, url: unread, tokenFile: join(folder, 'none') }
    writeFileSync(join(folder, 'client-3.json'), JSON.stringify(file), { mode: 0o600 })
    const { code, out, notes } = await status()
    expect(out).toMatch(/^client 1: ready/)
    expect(notes).toContain(`${strange} does not answer with JSON`)
    expect(notes).toContain(`no token for ${unread}: no such file`)
    expect(code).toBe(3)
    expect(JSON.parse((await status('--json')).out)).toEqual([JSON.parse(GOOD)])
  })

  test('status waits for a silent one no longer than its deadline, and for all at once', async () => {
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => AbortSignal.abort(new Error('too late')))
    await found(1, undefined)
    await found(2, undefined)
    const { code, out, notes } = await status()
    timeout.mockRestore()
    expect([code, out]).toEqual([1, ''])
    expect(notes.match(/does not answer \(too late\)/g)).toHaveLength(2)
  })
})

test.each([['drain'], ['revoke', '--jti', 'x'], ['sessions', 'close', '--runtime', 'x']])(
  '%s %s fails on something that is not a server',
  async (...words) => {
    const listener = createHttpServer((_request, response) => response.end('{"ok":true}'))
    await once(listener.listen(0, '127.0.0.1'), 'listening')
    const url = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`
    const { code, notes } = await sallyport([...words, '--admin', url])
    listener.close().closeAllConnections()
    expect([code, notes]).toEqual([1, `sallyport: ${url} did not report any action: it is not a server\n`])
  },
)

test('an expired rule is refused', async () => {
  const { code, notes } = await sallyport(['revoke', '--jti', 'x', '--until', '2020-01-01'])
  expect([code, notes]).toEqual([2, 'sallyport: --until 2020-01-01 is in the past: the rule would refuse nobody\n'])
})

test.each([['drain'], ['sessions', 'drain', '--runtime', 'x']])(
  '%s %s names the flag whose value is wrong',
  async (...words) => {
    const { code, notes } = await sallyport([...words, '--grace', '25h', '--admin', 'http://127.0.0.1:9'])
    expect([code, notes]).toEqual([2, 'sallyport: --grace 25h: expected a duration from 0s to 24h\n'])
  },
)
