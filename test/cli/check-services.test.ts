/** `sallyport check`: services behind URLs, each probe against the fault that it reports. */
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttp, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createHttps } from 'node:https'
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from 'node:net'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createAuthority, createServerCertificate } from '../../certs/index.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { oddCertificate } from '../support/odd-certificates.ts'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { useMachine } from './machine.ts'
import { sallyport } from './run.ts'

const SECRET = 'a-secret-of-this-test'
const machine = useMachine()
const { file } = machine
let good: { cert: string; key: string }
/** For another name. */
let misnamed: { cert: string; key: string }

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})
beforeAll(async () => {
  good = { cert: readFileSync(file('server.pem'), 'utf8'), key: readFileSync(file('server-key.pem'), 'utf8') }
  const authority = await createAuthority({ name: 'Another CA' })
  writeFileSync(file('other-ca.pem'), authority.certificate)
  const made = await createServerCertificate(authority, { hosts: ['elsewhere.example.com'] })
  misnamed = { cert: made.certificate, key: made.key }
})

async function check(component: string, args: readonly string[], environment: Record<string, string> = {}) {
  const { code, out, notes } = await sallyport(['check', component, '--json', ...args], { environment })
  expect(out + notes).not.toContain(SECRET)
  const { probes } = JSON.parse(out) as { probes: Probe[] }
  return { code, probes, of: (name: string) => probes.filter(probe => probe.code === name) }
}

const server = (args: readonly string[], environment?: Record<string, string>) =>
  check('server', [...machine.serverArgs(...args).slice(1)], environment)

async function listening(one: Server): Promise<number> {
  one.on('connection', (socket: Socket) => void stops.push(() => socket.destroy()))
  stops.push(() => one.close())
  await new Promise<void>(resolve => one.listen(0, '127.0.0.1', resolve))
  return (one.address() as AddressInfo).port
}

const https = async (answer: RequestListener, pair = good) =>
  `https://127.0.0.1:${await listening(createHttps(pair, answer))}/a?key=${SECRET}`
const http = async (answer: RequestListener) =>
  `http://127.0.0.1:${await listening(createHttp(answer))}/a?key=${SECRET}`
const says =
  (status: number, body = '', headers: Record<string, string> = {}): RequestListener =>
  (_, response) =>
    void response.writeHead(status, headers).end(body)
const silent: RequestListener = () => {}
const NOWHERE = 'https://127.0.0.1:1/a'

const DOCUMENTS = {
  'the key set of clients': { code: 'key-set', flag: 'auth.jwks', who: 'clients', more: [] },
  'the key set of callers': {
    code: 'key-set',
    flag: 'access.jwt.jwks',
    who: 'callers',
    more: ['--access.jwt.audience', 'callers'],
  },
  'the list of revocations': { code: 'revocations', flag: 'auth.revocations', who: 'clients', more: [] },
} as const

describe.each(Object.entries(DOCUMENTS))('%s', (_, { code, flag, who, more }) => {
  const isList = code === 'revocations'
  const valid = () => (isList ? '{ "revocations": [] }' : readFileSync(file('jwks.json'), 'utf8'))
  const look = async (url: string, ca = 'ca.pem') => {
    const args = machine.serverArgs(`--${flag}.url`, url, `--${flag}.ca`, file(ca), ...more).slice(1)
    const given = flag === 'auth.jwks' ? args.toSpliced(args.indexOf('--auth.jwks.file'), 2) : args
    const { of, code: exit } = await check('server', given)
    const [probe, ...others] = of(code).filter(({ what }) => what.startsWith(`--${flag}.`))
    expect(others).toEqual([])
    expect(probe!.what).toBe(`--${flag}.url ${url.split('?')[0]}`)
    expect(exit).toBe(probe!.status === 'ok' ? 0 : 5)
    return probe!
  }
  const fails = async (url: string, found: RegExp, hint = '', ca = 'ca.pem') => {
    const probe = await look(url, ca)
    expect(probe.status).toBe('fail')
    expect(probe.found).toMatch(found)
    expect(probe.hint).toBe(`${hint}Until it can be read, ${who} get 503.`)
  }

  test('valid, and asked for once, as the server does', async () => {
    const asked: IncomingMessage[] = []
    const url = await https((request, response) => {
      asked.push(request)
      response.end(valid())
    })
    expect(await look(url)).toMatchObject({ status: 'ok', hint: '' })
    expect(asked.map(({ method, headers }) => [method, headers.accept?.includes('json')])).toEqual([['GET', true]])
  })

  test.each([
    ['absent', says(404), /answered 404/],
    ['moved', says(302, '', { location: 'https://127.0.0.1:1/' }), /answered 302/],
    ['not JSON', says(200, '<html>'), /not JSON/],
    ['something else', says(200, '{}'), isListOrKeys()],
    ['too large', says(200, 'x'.repeat(3_000_000)), /over \d+ bytes/],
    ['empty', says(200), isEmpty()],
  ])('%s', async (_name, answer, found) => {
    await fails(await https(answer), found)
  })
  function isListOrKeys() {
    return isList ? /no list `revocations`/ : /no list `keys`/
  }
  function isEmpty() {
    return isList ? /empty/ : /not JSON/
  }

  test.skipIf(isList)('without a usable key', async () => {
    const secret = JSON.stringify({ keys: [{ kty: 'oct', k: SECRET }] })
    await fails(await https(says(200, secret)), /secret key/)
    const none = JSON.stringify({ keys: [{ kty: 'RSA', e: 'AQ', n: 'AQ' }] })
    await fails(await https(says(200, none)), /no public key/)
  })

  test.skipIf(isList)('without a key for the algorithms of tokens', async () => {
    const { keys } = JSON.parse(valid()) as { keys: object[] }
    const odd = JSON.stringify({ keys: keys.map(key => ({ ...key, alg: 'ES256K' })) })
    await fails(await https(says(200, odd)), /^the key set has no public key for EdDSA, ES256, /)
  })

  test('nothing listens, or without TLS; the wrong authority; the wrong name', async () => {
    await fails(NOWHERE, /ECONNREFUSED/, 'Nothing is listening there: start it, or correct the address. ')
    const plain = (await http(silent)).replace('http:', 'https:')
    await fails(plain, /^ERR_SSL_WRONG_VERSION_NUMBER$/, 'It does not speak TLS there. ')
    const trust = `Trust its authority (--${flag}.ca). `
    await fails(await https(says(200, valid())), /^unable to verify the first certificate$/, trust, 'other-ca.pem')
    await fails(await https(says(200, valid()), misnamed), /does not match/, '', 'other-ca.pem')
  })

  test('no answer', { tags: ['slow'] }, async () => {
    const hint = 'It hangs, or a firewall drops the packets. '
    await fails(await https(silent), /^no answer in time$/, hint)
  })
})

test('a key set in a file, without a key for --auth.algorithms', async () => {
  expect((await server([])).of('key-set')).toMatchObject([{ status: 'ok', found: 'it has keys for EdDSA' }])
  const { of, code } = await server(['--auth.algorithms', 'ES256,RS256'])
  const found = expect.stringMatching(
    /^--auth\.jwks\.file .*: the key set has no public key for ES256, RS256$/,
  ) as unknown
  expect(of('configuration')).toMatchObject([{ status: 'fail', found }])
  expect(code).toBe(5)
})

test.each([
  ['https://*.tunnels.localhost:8443', 'ok'],
  ['https://*.TUNNELS.localhost', 'ok'],
  ['https://*.tunnel.localhost', 'warn'],
])('the URL that clients are told: %s', async (url, status) => {
  expect((await server(['--public.url', url])).of('public-url')).toMatchObject([{ status }])
})

test('authorities of clients: one that issues nothing, one that has expired, and the right one', async () => {
  const look = async (name: string) => {
    const { of } = await server(['--control.tls.client-ca', file(name)])
    return of('certificate').find(({ what }) => what.startsWith('--control.tls.client-ca'))
  }
  expect(await look('ca.pem')).toMatchObject({ status: 'ok' })
  expect(await look('server.pem')).toMatchObject({ status: 'fail', found: 'no authority' })
  const old = await oddCertificate(undefined, { isAuthority: true, from: -9, to: -1 })
  writeFileSync(file('old-ca.pem'), old.certificate)
  expect(await look('old-ca.pem')).toMatchObject({
    status: 'fail',
    hint: expect.stringContaining('renew it') as unknown,
  })
})

describe('a service that decides who may call', () => {
  const look = async (url: string, ...more: string[]) => {
    const { of, code } = await server(['--access.forward-auth.url', url, ...more])
    const [probe] = of('forward-auth')
    expect(probe!.what).toBe(`--access.forward-auth.url ${url.split('?')[0]}`)
    expect(code).toBe(probe!.status === 'fail' ? 5 : 0)
    return probe!
  }

  test('is asked once, about a request that any stranger could send', async () => {
    const asked: IncomingMessage[] = []
    const url = await http((request, response) => {
      asked.push(request)
      response.writeHead(401).end()
    })
    expect(await look(url, '--access.runtimes', 'demo')).toMatchObject({ status: 'ok' })
    expect(asked).toHaveLength(1)
    const { method, headers } = asked[0]!
    expect([method, headers['user-agent']]).toEqual(['GET', 'sallyport-check'])
    expect(headers).toMatchObject({
      'x-forwarded-method': 'GET',
      'x-forwarded-uri': '/',
      'x-forwarded-host': 'demo.tunnels.localhost',
      'x-forwarded-for': '192.0.2.1',
    })
    expect(headers.authorization ?? headers.cookie).toBeUndefined()
  })

  test.each([
    ['401', says(401), 'ok', /refuses.*401/],
    ['403', says(403, 'no'), 'ok', /refuses.*403/],
    ['a redirect', says(302, '', { location: 'https://login.example.com/' }), 'ok', /refuses.*302/],
    ['200 for everybody', says(200), 'warn', /allows a caller without credentials/],
    ['404', says(404), 'fail', /answered 404/],
    ['500', says(500), 'fail', /answered 500/],
    ['a page that is too long', says(403, 'x'.repeat(100_000)), 'fail', /too large a body/],
  ])('that answers %s', async (_, answer, status, found) => {
    expect(await look(await http(answer))).toMatchObject({ status, found: expect.stringMatching(found) as unknown })
  })

  test('that nobody runs, that hangs, or whose certificate is not trusted', async () => {
    expect((await look('http://127.0.0.1:1/auth')).found).toMatch(/ECONNREFUSED/)
    const late = await look(await http(silent), '--access.forward-auth.timeout', '300ms')
    expect(late).toMatchObject({ status: 'fail', found: 'no answer in time' })
    const trusted = ['--access.forward-auth.ca', file('ca.pem')]
    expect((await look(await https(says(401)), ...trusted)).status).toBe('ok')
    const [refused] = [await look(await https(says(401), misnamed), ...trusted)]
    expect(refused).toMatchObject({ status: 'fail', found: expect.stringMatching(/certificate/) as unknown })
  })

  test('in a file with further rules, which is named', async () => {
    const rules = { 'forward-auth': { url: await http(says(500)) }, runtimes: ['shop'] }
    writeFileSync(file('shop.yaml'), JSON.stringify({ access: rules }))
    const own = await http(says(401))
    const { of } = await server(['--access.forward-auth.url', own, '--access.files', file('shop.yaml')])
    expect(of('forward-auth').map(({ status, what }) => [status, what.split(' http')[0]])).toEqual([
      ['ok', '--access.forward-auth.url'],
      ['fail', `${file('shop.yaml')}: access.forward-auth.url`],
    ])
  })
})

describe('a receiver of traces', () => {
  const routes = () => {
    writeFileSync(file('routes.yaml'), 'routes: []')
    return ['--routes', file('routes.yaml'), '--listen', '127.0.0.1:0']
  }
  const receive = async (...replies: OtlpReceiver['replies']) => {
    const receiver = await OtlpReceiver.start()
    receiver.replies.push(...replies)
    stops.push(() => receiver.stop())
    return receiver
  }
  const look = async (url: string, environment: Record<string, string> = {}) => {
    const { of, code } = await server(['--tracing', 'otlp', '--tracing.endpoint', url], environment)
    expect(code).toBe(of('tracing')[0]!.status === 'fail' ? 5 : 0)
    return of('tracing')[0]!
  }

  test('that is well gets one request without spans, with the fields of the component', async () => {
    const receiver = await receive()
    const environment = {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${SECRET}`,
    }
    const { of } = await check('router', [...routes(), '--tracing', 'otlp'], environment)
    expect(of('tracing')).toMatchObject([{ status: 'ok', what: `--tracing otlp to ${receiver.url}/v1/traces` }])
    await machine.writeToken('token', { runtime: 'demo', ttl: '1h' })
    const client = ['--server', 'wss://127.0.0.1:1', '--ca', file('ca.pem'), '--token.file', file('token'), '1']
    expect((await check('client', [...client, '--tracing', 'otlp'], environment)).of('tracing')[0]!.status).toBe('ok')
    expect((await server(['--tracing', 'otlp'], environment)).of('tracing')[0]!.status).toBe('ok')
    expect(receiver.faults).toEqual([])
    expect(receiver.requests.map(({ spans, resource }) => [spans.length, resource['service.name']])).toEqual([
      [0, 'sallyport-router'],
      [0, 'sallyport-client'],
      [0, 'sallyport-server'],
    ])
    expect(receiver.requests[0]!.headers.authorization).toBe(`Bearer ${SECRET}`)
  })

  test('that nobody runs, refuses, hangs, or speaks something else', async () => {
    expect(await look('http://127.0.0.1:1')).toMatchObject({ status: 'fail', found: 'ECONNREFUSED' })
    for (const status of [401, 404, 503]) {
      const { url } = await receive(to => to.writeHead(status).end(SECRET))
      expect(await look(url)).toMatchObject({ status: 'fail', found: `it answered ${status}` })
    }
    const { url } = await receive(() => {})
    expect(await look(url, { OTEL_EXPORTER_OTLP_TIMEOUT: '200' })).toMatchObject({
      status: 'fail',
      found: 'no answer in time',
    })
    const grpc = createTcp(socket => void socket.on('error', () => {}).end(Buffer.from('000000040000000000', 'hex')))
    expect((await look(`http://127.0.0.1:${await listening(grpc)}`)).hint).toContain('4318')
  })

  test('is not asked if it gets nothing', async () => {
    const receiver = await receive()
    const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url }
    expect((await server([], environment)).of('tracing')).toEqual([])
    expect((await server(['--tracing', 'recent'], environment)).of('tracing')).toEqual([])
    const off = await server(['--tracing', 'otlp'], { ...environment, OTEL_SDK_DISABLED: 'true' })
    expect(off.of('tracing')).toMatchObject([{ status: 'skip' }])
    expect(receiver.requests).toEqual([])
  })
})
