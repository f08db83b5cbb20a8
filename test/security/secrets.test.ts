/** A5: secrets planted wherever a deployment has any, and searched for in all its output. */
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { type AddressInfo, createServer as createNetServer } from 'node:net'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createServer as createTunnelServer } from '../../server/index.ts'
import { ADMIN, useMachine } from '../cli/machine.ts'
import { sallyport } from '../cli/run.ts'

const HOST = 'demo.tunnels.localhost'
const PLANTED = {
  adminToken: 'planted-admin-token-4711',
  proxyPassword: 'planted-proxy-password-4711',
  authorization: 'planted-authorization-4711',
  cookie: 'planted-cookie-4711',
  query: 'planted-query-4711',
  body: 'planted-body-4711',
  answer: 'planted-answer-4711',
  hook: 'planted-hook-signature-4711',
}

const machine = useMachine()
const { file } = machine
const closes: (() => void)[] = []

beforeAll(() => writeFileSync(file('admin-token'), PLANTED.adminToken, { mode: 0o600 }))
afterEach(() => {
  for (const close of closes.splice(0)) close()
})

const LOUD = () => [...ADMIN, '--log.level', 'debug', '--log.access', 'all', '--admin.token.file', file('admin-token')]
const startServer = () => machine.start(machine.serverArgs(...LOUD()))
const writeToken = (ttl: string, now = Date.now()) => machine.writeToken('token', { runtime: 'demo', ttl, now })

/** What no output may contain: whole secrets, and the secret part of tokens and keys. */
function secretParts(tokens: readonly string[]): string[] {
  const pem = (name: string) => readFileSync(file(name), 'utf8').split('\n').slice(1, -2)
  const signatures = tokens.map(token => token.split('.')[2]!)
  const key = machine.keys.privateJwk as { d?: string }
  return [...Object.values(PLANTED), ...signatures, key.d!, ...pem('server-key.pem'), ...pem('ca-key.pem')]
}

function expectClean(what: string, text: string, tokens: readonly string[]): void {
  for (const part of secretParts(tokens)) expect(text.includes(part), `${what} holds ${part}`).toBe(false)
}

async function ask(address: string, path: string, headers: Record<string, string>, body = ''): Promise<string> {
  const [host, port] = address.split(':')
  const sent = request({ host: host!, port: Number(port), path, method: 'POST', headers, agent: false })
  sent.end(body)
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += chunk
  return `${JSON.stringify(response.headers)}${text}`
}

async function read(address: string, path: string): Promise<string> {
  const headers = { authorization: `Bearer ${PLANTED.adminToken}` }
  const [host, port] = address.split(':')
  const sent = request({ host: host!, port: Number(port), path, headers, agent: false }).end()
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += chunk
  return `${JSON.stringify(response.headers)}${text}`
}

const CALLER = {
  host: HOST,
  authorization: `Bearer ${PLANTED.authorization}`,
  cookie: `session=${PLANTED.cookie}`,
  'x-gitlab-token': PLANTED.hook,
}

describe('A5 planted secrets', () => {
  test('A5: are in neither logs nor /status nor /metrics of a running pair, renewals and failures included', async () => {
    const service = createServer((incoming, response) => {
      incoming.resume()
      if (incoming.url?.startsWith('/cut') === true) response.destroy()
      else response.setHeader('set-cookie', PLANTED.answer).end(PLANTED.answer)
    })
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    closes.push(() => service.close())
    const tokens = [await writeToken('1h')]
    const server = startServer()
    const control = await server.address('control')
    const target = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
    const client = machine.start([
      ...['client', ...LOUD()],
      ...['--server', `wss://${control}`, '--ca', file('ca.pem'), '--target', target, '--token.file', file('token')],
    ])
    await client.line(line => line.msg === 'connected')
    const edge = await server.address('public')
    for (const path of [`/ok?token=${PLANTED.query}`, `/cut?token=${PLANTED.query}`]) {
      await ask(edge, path, CALLER, PLANTED.body)
    }
    // Refused at the edge: nothing of it is returned or logged.
    const refused = await ask(edge, `/x?token=${PLANTED.query}`, { ...CALLER, host: 'nobody.example' }, PLANTED.body)
    tokens.push(await writeToken('2h'))
    await client.line(line => /token/.test(String(line.msg)) && line.level !== 'debug').catch(() => {})
    const said = [refused]
    for (const part of [server, client]) {
      const admin = await part.address('admin')
      said.push(await read(admin, '/status'), await read(admin, '/metrics'), await read(admin, '/nothing'))
    }
    await client.end('SIGTERM')
    await server.end('SIGTERM')
    expectClean('what they answered', said.join('\n'), tokens)
    expectClean("the server's log", JSON.stringify(server.lines), tokens)
    expectClean("the client's log", JSON.stringify(client.lines), tokens)
    expect(server.lines.some(line => line.msg === 'exchange')).toBe(true)
  })

  test('A5: nor in those of a client that is refused, or whose proxy is', async () => {
    const old = await writeToken('90s', Date.now() - 3_600_000)
    const server = startServer()
    const control = await server.address('control')
    const common = ['--ca', file('ca.pem'), '--target', 'http://127.0.0.1:1', '--token.file', file('token')]
    const client = machine.start(['client', ...LOUD(), '--server', `wss://${control}`, ...common])
    await client.line(line => String(line.msg).includes('refused'))
    const proxy = createNetServer(socket => {
      socket.on('error', () => {})
      socket.once('data', () => socket.end('HTTP/1.1 407 No\r\nproxy-authenticate: Basic\r\n\r\n'))
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    closes.push(() => proxy.close())
    const url = `http://user:${PLANTED.proxyPassword}@127.0.0.1:${(proxy.address() as AddressInfo).port}`
    const proxied = machine.start(['client', ...LOUD(), '--server', `wss://${control}`, ...common], {
      SALLYPORT_PROXY: url,
    })
    await proxied.line(line => String(line.msg).includes('407') || JSON.stringify(line).includes('407'))
    for (const part of [server, client, proxied]) {
      await part.end('SIGTERM')
      expectClean('a log', JSON.stringify(part.lines), [old])
    }
  })

  test('A5: nor in a printed configuration or an error about a file or a flag', async () => {
    const token = await writeToken('1h')
    writeFileSync(file('bad.yaml'), `token: { fil: "${PLANTED.adminToken}" }\n`)
    writeFileSync(file('key-for-cert.pem'), readFileSync(file('server-key.pem')))
    const url = `http://user:${PLANTED.proxyPassword}@proxy.example:3128`
    const pair = ['--control.tls.key', file('server.pem'), '--control.tls.cert', file('key-for-cert.pem')]
    const runs: [string[], Record<string, string>?][] = [
      [['config', 'print', 'client', '--token.file', file('token'), '--proxy', url]],
      [['config', 'print', 'client'], { SALLYPORT_PROXY: url }],
      [['config', 'validate', 'client', '--proxy', `ftp://user:${PLANTED.proxyPassword}@x`]],
      [['config', 'validate', 'client'], { SALLYPORT_PROXY: `ftp://user:${PLANTED.proxyPassword}@x` }],
      // A key in place of a certificate, a certificate in place of a key, a key set that is a private key.
      [['server', '--auth.jwks.file', file('jwks.json'), '--domain', 'a.example', ...pair]],
      [['server', '--auth.jwks.file', file('server-key.pem'), '--domain', 'a.example', '--control.plaintext']],
      [['token', 'inspect', file('admin-token')]],
      [['token', 'create', '--key', file('server-key.pem'), '--runtime', 'demo']],
      [['status', '--admin', 'http://127.0.0.1:1', '--admin.token.file', file('admin-token')]],
    ]
    for (const [args, environment] of runs) {
      const { out, notes } = await sallyport(args, environment === undefined ? {} : { environment })
      expect(out + notes).not.toBe('')
      expectClean(args.join(' '), out + notes, [token])
    }
  })

  test('A5: nor in a line about a URL that does not answer, whose query may be a signature', async () => {
    const lines: object[] = []
    const note = (fields: object, message: string) => void lines.push({ ...fields, message })
    const url = `https://127.0.0.1:1/list?sig=${PLANTED.query}`
    const server = await createTunnelServer({
      control: 'off',
      domains: ['tunnels.localhost'],
      auth: { jwks: { url }, revocations: { url } },
      logger: { debug: note, info: note, warn: note, error: note },
    })
    await server.close({ graceMs: 0 })
    expect(JSON.stringify(lines)).toMatch(/key set could not be fetched.*revocations could not be fetched/)
    expectClean('the log', JSON.stringify(lines), [])
  })

  test('A5: nor in the output of a process that crashes', { tags: ['slow'] }, async () => {
    const token = await writeToken('1h')
    // An uncaught exception in a process that holds its secrets.
    const hook = file('crash.mjs')
    writeFileSync(hook, "process.on('SIGUSR2', () => { throw new Error('an unforeseen error') })\n")
    const server = startServer()
    const client = machine.start(
      [
        ...['client', ...LOUD(), '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
        ...['--token.file', file('token'), '--target', 'http://127.0.0.1:1'],
      ],
      { NODE_OPTIONS: `--import=${hook}` },
    )
    await client.line(line => line.msg === 'connected')
    const code = await client.end('SIGUSR2')
    expect(code).not.toBe(0)
    expect(client.text).toContain('an unforeseen error')
    expectClean('the crash', client.text, [token])
  })
})
