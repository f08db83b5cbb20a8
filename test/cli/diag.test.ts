/** `sallyport diag`: what the archive contains, and what appears nowhere in it. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createToken } from '../../certs/index.ts'
import { needs, program } from '../support/needs.ts'
import { ADMIN, useMachine } from './machine.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine

/** Each has its own, so that a failure shows which one came through. */
const planted = new Set<string>()
function canary(what: string): string {
  const text = `c4n4ry-${what}-0f8e7d6c`
  planted.add(text)
  return text
}

/** As it is, in base64 at any offset, and in a URL. */
function disguises(text: string): string[] {
  const base64 = [0, 1, 2].map(at =>
    Buffer.from('x'.repeat(at) + text)
      .toString('base64')
      .slice(4, -8),
  )
  return [text, ...base64, encodeURIComponent(text)]
}

/** What another program reads in the archive, by path. */
function unpack(path: string): Map<string, string> {
  const unzip = program('unzip')
  execFileSync(unzip, ['-tqq', path])
  const names = execFileSync(unzip, ['-Z1', path], { encoding: 'utf8' }).trim().split('\n')
  return new Map(names.map(name => [name, execFileSync(unzip, ['-p', path, name], { encoding: 'utf8' })]))
}

function expectClean(files: ReadonlyMap<string, string>): void {
  expect(planted.size).toBeGreaterThan(0)
  const found = [...files].flatMap(([name, text]) =>
    [...planted].filter(one => disguises(one).some(shape => text.includes(shape))).map(one => `${one} in ${name}`),
  )
  expect(found).toEqual([])
}

const json = (files: ReadonlyMap<string, string>, name: string) => JSON.parse(files.get(name)!)

beforeEach(() => {
  // Where other tests' components are found.
  vi.stubEnv('TMPDIR', file('.'))
})

afterEach(() => {
  vi.unstubAllEnvs()
  planted.clear()
  rmSync(file('report.zip'), { force: true })
})

describe.runIf(needs('unzip'))('of running components', () => {
  test('has what a report needs, and no secret from settings, variables, files or requests', {
    tags: ['slow'],
  }, async () => {
    const upstream = createServer((_, response) => void response.writeHead(502).end())
    upstream.listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    const port = (upstream.address() as AddressInfo).port
    const environment = {
      GITHUB_TOKEN: canary('variable'),
      DATABASE_URL: `postgres://user:${canary('url-in-variable')}@127.0.0.1/db`,
      ANYTHING: canary('plain-variable'),
    }
    writeFileSync(file('admin-token'), canary('admin-token'), { mode: 0o600 })
    const id = canary('token-id')
    const { token } = await createToken({ key: machine.keys.privateJwk, runtime: 'demo', ttl: '1h', id })
    planted.add(token.split('.')[2]!)
    writeFileSync(file('token'), token, { mode: 0o600 })
    const service = `http://127.0.0.1:1/?key=${canary('query-of-a-url')}`
    const server = machine.start(
      machine.serverArgs('--admin.token.file', file('admin-token'), '--log.access', 'all'),
      environment,
    )
    const proxy = `http://user:${canary('proxy-password')}@127.0.0.1:1`
    const command = `cat ${file('token')} --password=${canary('argument')}`
    const control = await server.address('control')
    const flags = [
      '--server',
      `wss://${control}`,
      '--ca',
      file('ca.pem'),
      '--log.access',
      'all',
      '--preset.app-proxy',
      service,
      ...ADMIN,
    ]
    const target = ['--target', `http://127.0.0.1:${port}`]
    const client = machine.start(['client', ...flags, '--token.file', file('token'), ...target], environment)
    const stuck = machine.start(['client', ...flags, '--token.command', command, ...target], {
      ...environment,
      SALLYPORT_PROXY: proxy,
    })
    await client.line(({ msg }) => msg === 'connected')
    await stuck.line(({ msg, level }) => level === 'warn' && msg !== '')
    const sent = request(`http://${await server.address('public')}/hook?token=${canary('query')}`, {
      method: 'POST',
      headers: {
        host: 'demo.tunnels.localhost',
        authorization: `Bearer ${canary('header')}`,
        cookie: `session=${canary('cookie')}`,
        'x-anything': canary('any-header'),
      },
    })
    sent.end(canary('body'))
    await once(sent, 'response')
    await client.line(({ msg }) => msg === 'exchange')
    upstream.close()

    const { code, notes } = await sallyport(['diag', '--out', file('report.zip'), '--profile', '1'], machine)
    expect([code, notes]).toEqual([0, ''])
    expect(statSync(file('report.zip')).mode & 0o777).toBe(0o600)
    const files = unpack(file('report.zip'))
    expectClean(files)
    for (const folder of ['server', 'client', 'client-2']) {
      const parts = [...files.keys()]
        .filter(name => name.startsWith(`${folder}/`))
        .map(name => name.slice(folder.length + 1))
      expect(parts).toEqual([
        ...['versions.json', 'configuration.json', 'check.json', 'status.json', 'metrics.txt'],
        ...['limits.json', 'report.json', 'log.txt', 'profile.cpuprofile'],
      ])
      expect(json(files, `${folder}/check.json`)).toMatchObject({ schema: 1, component: folder.replace('-2', '') })
      expect(json(files, `${folder}/report.json`).heap.used_heap_size).toBeGreaterThan(0)
      expect(json(files, `${folder}/profile.cpuprofile`).samples.length).toBeGreaterThan(0)
      expect(files.get(`${folder}/metrics.txt`)).toContain('# TYPE ')
    }
    expect(json(files, 'server/configuration.json')['limits.streams'].from).toBe('default')
    const settings = ['client', 'client-2'].map(folder => json(files, `${folder}/configuration.json`))
    expect(settings.map(one => one['preset.app-proxy'].value)).toEqual(Array(2).fill('http://127.0.0.1:1/?***'))
    const withProxy = settings.find(({ proxy }) => proxy !== undefined)
    expect(withProxy.proxy.value).toMatch(/^http:\/\/\[redacted:\w+\]@127\.0\.0\.1:1$/)
    expect(withProxy['token.command'].value).toBe('***')
    expect(json(files, 'server/status.json').openSessions.length).toBeGreaterThan(0)
    expect(files.get('server/log.txt')).toContain('"path":"/hook"')
    expect(json(files, 'server/limits.json').user.open_files.soft).toBeGreaterThan(0)
  })

  test('a component that does not answer is named, and the others are included', async () => {
    const server = machine.start(machine.serverArgs())
    await server.address('public')
    // Nobody without the token learns anything, or makes it check or profile itself.
    const admin = `http://${await server.address('admin')}`
    for (const path of ['/diag', '/diag?profile=30']) expect((await fetch(admin + path)).status).toBe(401)
    const gone = { component: 'client', pid: process.pid, url: 'http://127.0.0.1:2', token: 'a-token-that-is-long' }
    const folder = file('run')
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    writeFileSync(file(`run/client-${process.pid}.json`), JSON.stringify(gone), { mode: 0o600 })
    try {
      const { code, notes } = await sallyport(['diag', '--out', file('report.zip')], machine)
      expect([code, notes]).toEqual([1, 'sallyport: http://127.0.0.1:2 does not answer (ECONNREFUSED)\n'])
    } finally {
      rmSync(file(`run/client-${process.pid}.json`))
    }
    const files = unpack(file('report.zip'))
    expect(files.get('client/problem.txt')).toContain('does not answer')
    expect(files.has('server/status.json')).toBe(true)
  })
})

describe.runIf(needs('unzip'))('of a component that is not running', () => {
  const LINES = () => [
    `Authorization: Basic ${Buffer.from(`user:${canary('basic')}`).toString('base64')}`,
    `proxy-authorization: ${canary('any-scheme')}`,
    `GET / HTTP/1.1 | Cookie: a=${canary('cookie-1')}; b=${canary('cookie-2')}`,
    `cannot open postgres://user:${canary('store')}@127.0.0.1/db`,
    `login failed with password=${canary('assigned')} for user`,
    `password: ${canary('told')}`,
    `GET /callback?code=1&access_token=${canary('query')}#x`,
    JSON.stringify({ msg: 'x', token: canary('member'), deep: { client_secret: canary('deep-member') } }),
    JSON.stringify({ msg: `{"password":"${canary('json-in-json')}"}` }),
    `-----BEGIN PRIVATE KEY-----\\n${canary('pem')}\\n-----END PRIVATE KEY-----`,
    ['-----BEGIN EC PRIVATE KEY-----', canary('pem-lines'), '-----END EC PRIVATE KEY-----']
      .map(line => `Nov 26 13:00:00 host sallyport[1]: ${line}`)
      .join('\n'),
    `eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZW1vIn0.${canary('jwt')}`,
    `the store said that ${readFileSync(file('token'), 'utf8')} is no token`,
  ]

  test('configuration, check and the given log', async () => {
    writeFileSync(file('token'), canary('token-file'), { mode: 0o600 })
    writeFileSync(file('log'), `${'x'.repeat(2 * 1024 * 1024)}\n`)
    for (const [at, line] of LINES().entries()) appendFileSync(file('log'), `line ${at}: kept\n${line}\n`)
    writeFileSync(file('client.yaml'), `# ${canary('comment')}\nserver: wss://127.0.0.1:1\n`)
    const flags = ['--config', file('client.yaml'), '--token.file', file('token'), '--target', 'http://127.0.0.1:1']
    const { code } = await sallyport([
      'diag',
      'client',
      '--out',
      file('report.zip'),
      '--log.file',
      file('log'),
      ...flags,
    ])
    expect(code).toBe(0)
    const files = unpack(file('report.zip'))
    expectClean(files)
    expect([...files.keys()].filter(name => !name.startsWith('client/'))).toEqual([
      'README.txt',
      'versions.json',
      'log.txt',
    ])
    const probes: { code: string; status: string }[] = json(files, 'client/check.json').probes
    expect(probes.find(({ code }) => code === 'tcp')).toMatchObject({ status: 'fail' })
    const log = files.get('log.txt')!
    expect(log.split('\n').filter(line => /^line \d+: kept$/.test(line))).toHaveLength(LINES().length)
    expect(log.length).toBeLessThan(1.1 * 1024 * 1024)
  })

  test('a log with long runs, in which a pattern could search from each letter', async () => {
    const runs = [
      'a-',
      'token=',
      'x-token ',
      '"',
      '\\',
      'bearer ',
      ' ',
      '-----BEGIN PRIVATE KEY-----',
      '{"a":',
      '=',
      '://',
    ]
    const deep = '['.repeat(80_000) + ']'.repeat(80_000)
    writeFileSync(file('log'), [deep, ...runs.map(run => run.repeat(Math.ceil(80_000 / run.length)))].join('\n'))
    const flags = ['--out', file('report.zip'), '--log.file', file('log'), '--connections', '2']
    const { code } = await sallyport(['diag', 'client', ...flags])
    expect(code).toBe(0)
    expect(unpack(file('report.zip')).get('log.txt')).toContain('a-a-a-')
  })

  const withLog = async (log: string, flags: readonly string[], environment: Record<string, string> = {}) => {
    writeFileSync(file('log'), log)
    const args = ['diag', 'client', '--out', file('report.zip'), '--force', '--log.file', file('log'), ...flags]
    const { code, notes } = await sallyport(args, { environment })
    const files = unpack(file('report.zip'))
    expectClean(files)
    return { code, notes, files }
  }
  const SERVER = ['--server', 'wss://127.0.0.1:1', '--target', 'http://127.0.0.1:1']

  test.each([
    ...[
      'AWS_SECRET_ACCESS_KEY',
      'OPENAI_API_KEY',
      'PGPASSWORD',
      'DB_PASS',
      'MYSQL_PWD',
      'JWT_SIGNING_KEY',
      'NPM_TOKEN',
    ],
    ...['OAUTH_CLIENT_SECRET_1', 'GOOGLE_CREDENTIALS', 'BASIC_AUTH', 'SSH_PASSPHRASE', 'SENTRY_DSN', 'GITHUB_TOKEN'],
  ])('a log that contains the value of the variable %s', async name => {
    const { code } = await withLog(`it said ${canary('variable')} to me`, SERVER, { [name]: canary('variable') })
    expect(code).toBe(0)
  })

  test('a log that contains the values of variables with several parts', async () => {
    const headers = `authorization=Bearer%20${canary('bearer')},x-team=${canary('team')}`
    const proxy = `user:${canary('proxy')}@proxy:3128`
    const log = [...planted].join(' and ')
    await withLog(log, SERVER, { OTEL_EXPORTER_OTLP_HEADERS: headers, http_proxy: proxy })
  })

  test('a log with a secret in JSON and URLs', async () => {
    const secret = `a"\\\u00e9 /${canary('file')}`
    writeFileSync(file('token'), secret, { mode: 0o600 })
    const log = `${JSON.stringify({ msg: `no ${secret}` })}\nGET /${encodeURIComponent(secret)}\n`
    const { files } = await withLog(log, [...SERVER, '--token.file', file('token')])
    expect(files.get('log.txt')).toContain('GET /[redacted]')
  })

  test("a log with a route's secret, even if the table is invalid", async () => {
    writeFileSync(file('hook'), `${canary('webhook')}\n`, { mode: 0o600 })
    for (const more of ['', ', nonsense: 1', ', {']) {
      const route = `{ name: a, match: {}, target: 'http://h', verify: { scheme: gitlab, secrets: [{ file: hook }] }${more} }`
      writeFileSync(file('routes.yaml'), `routes:\n  - ${route}\n`)
      await withLog(`it had ${canary('webhook')} there`, [
        '--server',
        'wss://127.0.0.1:1',
        '--routes',
        file('routes.yaml'),
      ])
    }
  })

  test('a log with an invalid configuration, and none with an unreadable one', async () => {
    writeFileSync(file('token'), canary('token-file'), { mode: 0o600 })
    const flags = [...SERVER, '--token.file', file('token'), '--connections', 'many']
    const { files } = await withLog(`it is ${canary('token-file')}`, flags)
    expect(files.get('log.txt')).toContain('it is [redacted]')
    writeFileSync(file('client.yaml'), `token.file: "${file('token')}\n`)
    const broken = await withLog(`it is ${canary('token-file')}`, ['--config', file('client.yaml')])
    expect(broken.notes).toContain('the log is left out')
    expect([...broken.files.keys()]).toEqual(['README.txt', 'versions.json', 'client/problem.txt'])
  })

  test('says what is wrong with a configuration without its control characters', async () => {
    writeFileSync(file('client.yaml'), '"na\\u001bme": 2\n')
    const { notes } = await sallyport(['diag', 'client', '--out', file('report.zip'), '--config', file('client.yaml')])
    expect(notes).toContain('client.yaml:1:1: unknown key na?me\n')
  })

  test('with an invalid configuration, whatever was put in place of a value', async () => {
    const flags = ['--out', file('report.zip'), '--server', 'wss://127.0.0.1:1']
    const { code, notes } = await sallyport(['diag', 'client', ...flags], {
      environment: { SALLYPORT_CONNECTIONS: canary('value') },
    })
    expect([code, notes]).toEqual([0, expect.stringContaining('SALLYPORT_CONNECTIONS') as unknown])
    const files = unpack(file('report.zip'))
    expectClean(files)
    expect(files.get('client/problem.txt')).toMatch(/^SALLYPORT_CONNECTIONS: "\*\*\*" is not valid/)
  })
})

describe('the command', () => {
  test('refuses to overwrite a file before it asks any component', async () => {
    writeFileSync(file('report.zip'), 'mine')
    const { code, notes } = await sallyport(['diag', '--out', file('report.zip')], machine)
    expect([code, notes]).toEqual([3, `sallyport: ${file('report.zip')} already exists (--force overwrites it)\n`])
    expect(readFileSync(file('report.zip'), 'utf8')).toBe('mine')
  })

  test('says what to do if nothing is running, and writes nothing', async () => {
    const { code, notes } = await sallyport(['diag', '--out', file('report.zip')], machine)
    expect([code, existsSync(file('report.zip'))]).toEqual([1, false])
    expect(notes).toContain('sallyport diag client')
  })

  test('reads the log from stdin', async () => {
    const args = ['diag', 'client', '--out', file('report.zip'), '--log.file', '-', '--server', 'x']
    const { status } = spawnSync(process.execPath, ['bin/sallyport.js', ...args], { input: 'from stdin\n' })
    expect(status).toBe(0)
    expect(readFileSync(file('report.zip')).includes('log.txt')).toBe(true)
  })

  test('waits for a log that arrives late, as from journalctl', async () => {
    const args = ['diag', 'client', '--out', file('report.zip'), '--log.file', '-', '--connections', 'many']
    const child = spawn(process.execPath, ['bin/sallyport.js', ...args], { stdio: ['pipe', 'ignore', 'pipe'] })
    // It has read the configuration, and is reading the log.
    await once(child.stderr, 'data')
    setTimeout(() => child.stdin.end('from a slow writer\n'), 300)
    expect(await once(child, 'close')).toEqual([0, null])
    expect(readFileSync(file('report.zip')).includes('log.txt')).toBe(true)
  })

  test('reads no log from a pipe that nobody writes to', async () => {
    execFileSync('mkfifo', [file('pipe')])
    const args = ['diag', 'client', '--out', file('report.zip'), '--log.file', file('pipe'), '--connections', 'many']
    const { code, notes } = await sallyport(args)
    expect([code, notes]).toEqual([3, expect.stringContaining('not a plain file; pass its text on stdin') as unknown])
  })

  test('accepts no log without the settings that reveal its secrets', async () => {
    const { code, notes } = await sallyport(['diag', '--out', file('report.zip'), '--log.file', file('log')], machine)
    expect([code, notes]).toEqual([2, expect.stringContaining('unknown flag --log.file') as unknown])
  })
})
