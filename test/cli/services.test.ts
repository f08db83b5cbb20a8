// @module-tag slow
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createNetServer } from 'node:net'
import { beforeAll, describe, expect, test } from 'vitest'
import { keepSockets } from '../support/kept-sockets.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { Running } from './process.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file, serverArgs } = machine
beforeAll(() => writeFileSync(file('private.jwk'), JSON.stringify(machine.keys.privateJwk)))

const startServer = (...more: string[]) => machine.start(serverArgs(...more))

function startClient(control: string, target: string, ...more: string[]): Running {
  const token = more.some(word => word.startsWith('--token.')) ? [] : ['--token.file', file('token')]
  const args = ['--server', `wss://${control}`, '--ca', file('ca.pem'), '--target', target, ...ADMIN]
  return machine.start(['client', ...args, ...token, ...more])
}

const writeToken = (name = 'token', ttl = '1h', runtime = 'demo') => machine.writeToken(name, { ttl, runtime })

async function get(address: string, path: string, headers: Record<string, string> = {}) {
  const [host, port] = address.split(':')
  const sent = request({ host: host!, port: Number(port), path, headers, agent: false }).end()
  const [response] = await once(sent, 'response')
  let body = ''
  for await (const chunk of response.setEncoding('utf8')) body += chunk
  return { status: response.statusCode as number, body }
}

/** A service that answers with its name, and stops with the test. */
async function upstream(): Promise<{ url: string; close(): void }> {
  const server = createServer((_, response) => response.end('from the service'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, close: () => server.close() }
}

/** Why it does not start. A listener that was opened meanwhile may print its line after that. */
const complaint = ({ lines }: Running) => lines.find(({ msg }) => msg.startsWith('sallyport: '))?.msg

describe('server and client', () => {
  test('a request passes; readiness, metrics and status are right; both exit gracefully with 0', async () => {
    const service = await upstream()
    await writeToken()
    const server = startServer('--log.access', 'all')
    const client = startClient(await server.address('control'), service.url)
    const connected = await client.line(line => line.msg === 'connected')
    expect(connected).toMatchObject({ component: 'client', runtime: 'demo', session: expect.any(String) })

    const host = 'demo.tunnels.localhost'
    expect(await get(await server.address('public'), '/', { host })).toEqual({ status: 200, body: 'from the service' })

    const admin = await client.address('admin')
    expect((await get(admin, '/readyz')).status).toBe(200)
    expect((await get(admin, '/metrics')).body).toMatch(/^sallyport_token_expiry_timestamp_seconds \d{10}/m)
    expect((await get(admin, '/metrics')).body).toMatch(
      /^sallyport_exchanges_total\{http_response_status_code="200",error_type="",route="[^"]*"\} 1$/m,
    )

    const { environment } = machine
    const status = await sallyport(['status', '--admin', `http://${admin}`, '--json'], { environment })
    const found = JSON.parse(status.out) as { runtime: string; sessions: { connectedSince: string }[] }
    expect(found).toMatchObject({ component: 'client', runtime: 'demo', ready: true })
    expect(Date.parse(found.sessions[0]!.connectedSince)).toBeLessThanOrEqual(Date.now())

    expect(await client.end('SIGTERM')).toBe(0)
    expect(await server.end('SIGINT')).toBe(0)
    expect(client.lines.at(-1)).toMatchObject({ msg: 'stopped' })
    expect(server.lines.find(line => line.msg === 'exchange')).toMatchObject({
      component: 'server',
      runtime: 'demo',
      session: expect.any(String),
      requestId: expect.any(String),
      durationMs: expect.any(Number),
      status: 200,
      bytesIn: 0,
      bytesOut: 16,
    })
    expect(client.out + server.out).toBe('')
    service.close()
  })

  test('a token file that appears late and is renewed by a rename: the session stays', async () => {
    rmSync(file('late'), { force: true })
    const server = startServer()
    const client = startClient(await server.address('control'), 'http://127.0.0.1:9', '--token.file', file('late'))
    await client.line(line => line.msg === 'the token file does not exist yet; waiting for it')
    expect((await get(await client.address('admin'), '/readyz')).status).toBe(503)
    await writeToken('late', '1h')
    const { session } = await client.line(line => line.msg === 'connected')
    await writeToken('late', '2h')
    await client.line(line => line.msg === 'the session has a fresh token' && line.session === session)
    expect(client.lines.some(line => line.msg === 'disconnected')).toBe(false)
  })

  test('a client that stops takes fresh tokens for its last requests', async () => {
    const late = Promise.withResolvers<ServerResponse>()
    const service = createServer((_, response) => late.resolve(response)).listen(0, '127.0.0.1')
    await once(service, 'listening')
    await writeToken()
    const server = startServer()
    const { port } = service.address() as AddressInfo
    const client = startClient(await server.address('control'), `http://127.0.0.1:${port}`)
    await client.line(line => line.msg === 'connected')
    const answer = get(await server.address('public'), '/', { host: 'demo.tunnels.localhost' })
    const response = await late.promise
    const stopped = client.end('SIGTERM')
    await client.line(line => line.msg.startsWith('draining'))
    await writeToken('token', '2h')
    await client.line(line => line.msg === 'the session has a fresh token')
    response.end('from the service')
    expect(await answer).toEqual({ status: 200, body: 'from the service' })
    expect(await stopped).toBe(0)
    service.close()
  })

  test('C4: a client certificate is read from its file when that changes, and a bad one is ignored', async () => {
    await sallyport(['certs', 'client', '--out', file(''), '--runtime', 'other'])
    await sallyport(['certs', 'client', '--out', file(''), '--runtime', 'demo'])
    const use = (name: string) => {
      for (const end of ['.pem', '-key.pem']) writeFileSync(file(`mine${end}`), readFileSync(file(`${name}${end}`)))
    }
    use('other')
    await writeToken()
    const server = startServer('--control.tls.client-ca', file('ca.pem'))
    const pair = ['--tls.cert', file('mine.pem'), '--tls.key', file('mine-key.pem')]
    const client = startClient(await server.address('control'), 'http://127.0.0.1:9', ...pair)
    await client.line(line => line.msg.startsWith('the server refused this client'))
    writeFileSync(file('mine.pem'), 'nonsense')
    await client.line(line => line.msg === 'the new certificates cannot be used; the old ones stay in force')
    use('demo')
    await client.line(line => line.msg === 'connected')
  })

  test('a token command: run without a shell, its output in no log', async () => {
    const server = startServer()
    const create = ['token', 'create', '--key', file('private.jwk'), '--runtime', 'demo', '--ttl', '1h']
    const command = [process.execPath, 'bin/sallyport.js', ...create].map(word => `"${word}"`).join(' ')
    const control = await server.address('control')
    const more = ['--log.level', 'debug', '--proxy', '']
    const client = startClient(control, 'http://127.0.0.1:9', '--token.command', command, ...more)
    await client.line(line => line.msg === 'connected')
    expect(client.text + server.text).not.toContain('eyJ')
  })

  test('by default a refused client keeps trying and says why; with --exit-on-refusal it ends with 4', async () => {
    await writeToken('ended', '1s')
    const server = startServer('--auth.audience', 'another')
    const control = await server.address('control')
    await writeToken()
    const patient = startClient(control, 'http://127.0.0.1:9', '--log.level', 'debug')
    const line = await patient.line(line => line.msg.startsWith('the server refused this client'))
    expect(line.reason).toMatch(
      /^refused \(401, request [\w-]+\): the server did not accept your token for runtime "demo"/,
    )
    await patient.line(line => line.level === 'debug' && line.msg.includes('next attempt in'))
    const strict = startClient(control, 'http://127.0.0.1:9', '--exit-on-refusal')
    expect(await strict.end()).toBe(4)
    expect(strict.text).not.toContain('eyJ')
  })
})

describe('router', () => {
  test('serves its table, prints its address, and loads a changed file', async () => {
    const service = await upstream()
    const routes = (path: string) => `routes:\n  - { name: a, match: { path: ${path} }, target: "${service.url}" }\n`
    writeFileSync(file('routes.yaml'), routes('/one'))
    const router = machine.start(['router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'), ...ADMIN])
    const address = await router.address('router')
    expect((await get(address, '/one')).body).toBe('from the service')
    writeFileSync(file('routes.new'), routes('/two'))
    renameSync(file('routes.new'), file('routes.yaml'))
    await router.line(line => line.msg === 'routes reloaded')
    expect((await get(address, '/one')).status).toBe(404)
    expect((await get(address, '/two')).body).toBe('from the service')
    expect((await get(await router.address('admin'), '/readyz')).status).toBe(200)
    expect(await router.end('SIGTERM')).toBe(0)
    service.close()
  })
})

describe('ports', () => {
  async function taken(): Promise<{ address: string; close(): void }> {
    const server = createNetServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() }
  }

  test.each(['admin.listen', 'health.listen'])('--%s in use is exit 3', async flag => {
    const { address, close } = await taken()
    const server = startServer(`--${flag}`, address)
    expect(await server.end()).toBe(3)
    expect(complaint(server)).toBe(`sallyport: --${flag} ${address} is in use by another process`)
    close()
  })

  test('a default admin port that is in use is replaced by a free one', async () => {
    writeFileSync(file('routes.yaml'), 'routes: []\n')
    const args = ['router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml')]
    const first = await machine.start(args).address('admin')
    const second = machine.start(args)
    expect(await second.address('admin')).not.toBe(first)
    await second.line(line => line.msg === 'the default admin port is taken; another is used')
  })

  test.each(['PUBLIC_LISTEN', 'CONTROL_LISTEN'])('SALLYPORT_%s in use is exit 3', async variable => {
    const { address, close } = await taken()
    const flag = variable.toLowerCase().replace('_', '.')
    const addresses = { SALLYPORT_PUBLIC_LISTEN: '127.0.0.1:0', SALLYPORT_CONTROL_LISTEN: '127.0.0.1:0' }
    const server = machine.start(
      [
        ...['server', '--domain', 'a.b', '--auth.jwks.file', file('jwks.json'), ...ADMIN],
        ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
      ],
      { ...addresses, [`SALLYPORT_${variable}`]: address },
    )
    expect(await server.end()).toBe(3)
    expect(complaint(server)).toBe(`sallyport: --${flag} ${address} is in use by another process`)
    close()
  })
})

describe("a supervisor's sockets", () => {
  /** What the server says when it refuses them. */
  async function refusal(name: string, host: string, ...args: string[]): Promise<string | undefined> {
    const kept = await keepSockets([name], host)
    const server = machine.start(serverArgs(...args), {}, kept)
    await server.end()
    return complaint(server)
  }

  test.each([
    ['peer', []],
    ['health', []],
    ['admin', ['--admin.listen', 'off']],
  ])('one for %s is refused if that does not listen: nobody would answer', async (name, more) => {
    expect(await refusal(name, '127.0.0.1', ...more)).toBe(
      `sallyport: a socket is given for "${name}", but no --${name}.listen`,
    )
  })

  test.each([
    ['public', 'give --public.tls.cert and'],
    ['admin', 'give --admin.token.file'],
  ])('one for %s that is not on loopback is refused like its flag', async (name, remedy) => {
    expect(await refusal(name, '0.0.0.0')).toMatch(
      new RegExp(`^sallyport: --${name}\\.listen 0\\.0\\.0\\.0:\\d+ is not loopback: ${remedy}`),
    )
  })
})

describe('signals', () => {
  test('a second one ends it at once, in the middle of an exchange', async () => {
    const hanging = createServer(() => {})
    hanging.listen(0, '127.0.0.1')
    await once(hanging, 'listening')
    await writeToken()
    const server = startServer()
    const url = `http://127.0.0.1:${(hanging.address() as AddressInfo).port}`
    // A second connection, which is idle, might end after the second signal.
    const client = startClient(await server.address('control'), url, '--connections', '1')
    await client.line(line => line.msg === 'connected')
    const arrived = once(hanging, 'request')
    const answer = get(await server.address('public'), '/', { host: 'demo.tunnels.localhost' }).catch(() => undefined)
    await arrived
    client.kill('SIGTERM')
    await client.line(line => line.msg === 'stopping')
    expect((await get(await client.address('admin'), '/readyz')).status).toBe(503)
    client.kill('SIGTERM')
    expect(await client.end()).toBe(1)
    expect(client.lines.at(-1)).toMatchObject({ msg: 'stopping at once' })
    await answer
    hanging.closeAllConnections()
    hanging.close()
  })
})

describe('logs', () => {
  test('an unknown variable causes a warning, the text format is readable, and only stderr is written', async () => {
    const server = machine.start(
      [
        ...['server', '--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--domain', 'a.b', ...ADMIN],
        ...['--control.plaintext', '--auth.jwks.file', file('jwks.json'), '--log.format', 'text'],
      ],
      { SALLYPORT_DOMIAN: 'x', SALLYPORT_PORT: 'tcp://10.0.0.1:443' },
    )
    const line = await server.line(line => line.msg.includes('name=control'))
    expect(line.msg).toMatch(/^\d\d:\d\d:\d\d info {2}listening name=control address=127\.0\.0\.1:\d+$/)
    expect(server.lines[0]!.msg).toMatch(
      /warn {2}unknown variable SALLYPORT_DOMIAN is ignored; did you mean SALLYPORT_DOMAIN\?$/,
    )
    expect(server.lines.some(({ msg }) => msg.includes('SALLYPORT_PORT'))).toBe(false)
    expect(server.out).toBe('')
  })
})

test('the admin token from a file is in force, off loopback and by any name', async () => {
  writeFileSync(file('admin-token'), 'sixteen-characters-and-more\n')
  writeFileSync(file('routes.yaml'), 'routes: []\n')
  const router = machine.start([
    ...['router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'), '--admin.listen', '0.0.0.0:0'],
    ...['--admin.token.file', file('admin-token'), '--health.listen', '127.0.0.1:0'],
  ])
  const admin = (await router.address('admin')).replace('0.0.0.0', '127.0.0.1')
  expect((await get(admin, '/status')).status).toBe(401)
  const authorization = `Bearer ${readFileSync(file('admin-token'), 'utf8').trim()}`
  expect((await get(admin, '/status', { authorization, host: 'router.example' })).status).toBe(200)
  expect((await get(await router.address('health'), '/readyz', { host: '10.42.0.3:8086' })).status).toBe(200)
  const status = await sallyport(['status'], machine)
  expect(status.out).toMatch(/^router \d.*: ready, running for \d+ m?s$/m)
})

/**
 * A call that never ends keeps a thread of Node's: for example a file on a mount that has stopped answering after the
 * service listens.
 */
function aCallThatNeverEnds(): Record<string, string> {
  const program = `import { open } from 'node:fs/promises'; open(${JSON.stringify(file('pipe'))})`
  return { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(program)}` }
}

describe('a file that never answers', () => {
  beforeAll(() => execFileSync('mkfifo', [file('pipe')]))

  test('does not keep a service from exiting', async () => {
    const service = machine.start(serverArgs(), aCallThatNeverEnds())
    await service.address('public')
    expect(await service.end('SIGTERM')).toBe(0)
    expect(service.lines.at(-1)!.msg).toBe('stopped')
  })

  test('does not change the exit code of a failing command', async () => {
    expect(await machine.start(['server'], aCallThatNeverEnds()).end()).toBe(3)
  })

  test('that replaces a file while we serve affects nobody, and is reported', async () => {
    const own = (name: string) => file(`replaced/${name}`)
    mkdirSync(own(''))
    for (const name of ['server.pem', 'server-key.pem', 'jwks.json', 'ca.pem']) copyFileSync(file(name), own(name))
    writeFileSync(own('revoked.json'), '')
    writeFileSync(own('admin'), `${'x'.repeat(32)}\n`)
    writeFileSync(own('token'), await machine.writeToken('token', { runtime: 'demo' }))
    const route = '{ name: a, match: { path: / }, target: "https://127.0.0.1:9", tls: { ca: ca.pem } }'
    writeFileSync(own('routes.yaml'), `routes:\n  - ${route}\n`)
    const files = readdirSync(own(''))
    const args = serverArgs('--auth.revocations.file', file('revoked.json'), '--admin.token.file', file('admin'))
    const server = machine.start(args.map(word => word.replace(file(''), own(''))))
    const client = machine.start([
      ...['client', '--server', `wss://${await server.address('control')}`, '--ca', own('ca.pem')],
      ...['--token.file', own('token'), '--routes', own('routes.yaml'), ...ADMIN],
    ])
    await client.line(line => line.msg === 'connected')
    for (const name of files) {
      execFileSync('mkfifo', [own('pipe')])
      renameSync(own('pipe'), own(name))
    }
    const expected = [
      [server, 'the new certificate is bad; the old one stays'],
      [server, 'the key set file is bad; the old set stays'],
      [server, 'the list of revocations is bad; the old one stays'],
      [client, 'the token file cannot be read; the old token stays in force'],
      [client, 'the new certificates cannot be used; the old ones stay in force'],
      [client, 'bad routes file; the old routes stay in force'],
    ] as const
    for (const [process, msg] of expected) await process.line(line => line.msg === msg)
    const authorization = `Bearer ${'x'.repeat(32)}`
    expect(await get(await server.address('admin'), '/status', { authorization })).toMatchObject({ status: 401 })
    await server.line(line => line.msg === 'the admin token cannot be used; nobody gets in')
    for (const process of [server, client]) {
      expect(await get(await process.address('admin'), '/livez')).toMatchObject({ status: 200 })
    }
    expect(await client.end('SIGTERM')).toBe(0)
    expect(await server.end('SIGTERM')).toBe(0)
  })
})
