/** security.md, "Certificates": C1 to C6, at the control endpoint, at the client and at the public edge. */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer as createHttps, type ServerOptions as HttpsOptions } from 'node:https'
import { type AddressInfo, connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type ConnectionOptions, connect as connectTls, createServer as createTls, type TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type CertificateAndKey, createClientCertificate, createServerCertificate } from '../../certs/index.ts'
import { connect as connectClient } from '../../client/index.ts'
import { serveRouter } from '../../router/index.ts'
import type { Server } from '../../server/server.ts'
import { sallyport } from '../cli/run.ts'
import {
  always,
  CONTROL_NAME,
  call,
  clientCertificate,
  DOMAIN,
  dial,
  event,
  makeWorld,
  openWebSocket,
  startServer,
  token,
} from '../server/fixture.ts'
import { forged, type OddCertificate, oddCertificate } from '../support/odd-certificates.ts'
import { eventually } from '../support/until.ts'

const EDGE_NAME = `demo.${DOMAIN}`
const ROOT = resolve(import.meta.dirname, '../..')

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

let server: Server
async function startTls(options: Parameters<typeof startServer>[0] = {}): Promise<void> {
  server = await startServer(options)
  stops.push(() => server.close({ graceMs: 0 }))
}

async function startMutual(): Promise<void> {
  const made = await makeWorld()
  const tls = { cert: made.server.certificate, key: made.server.key }
  await startTls({ control: { port: 0, tls, clientCa: made.authority.certificate } })
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-'))
  stops.push(() => rm(folder, { recursive: true }))
  return folder
}

/** Whether a second connection resumes the first one's TLS session. */
async function isResumed(port: number, version: 'TLSv1.2' | 'TLSv1.3'): Promise<boolean> {
  const { certificate: cert, key } = await clientCertificate('demo')
  const options = { host: '127.0.0.1', port, cert, key, maxVersion: version, rejectUnauthorized: false }
  const talk = async (session?: Buffer) => {
    const socket = connectTls({ ...options, session, servername: EDGE_NAME })
    let latest: Buffer | undefined
    socket.on('session', bytes => (latest = bytes))
    socket.write(`GET / HTTP/1.1\r\nhost: ${EDGE_NAME}\r\n\r\n`)
    // Tickets arrive before the answer.
    await once(socket, 'data')
    const reused = socket.isSessionReused()
    socket.destroy()
    return { reused, session: latest ?? socket.getSession() }
  }
  const first = await talk()
  return (await talk(first.session)).reused
}

type Issue = (authority: CertificateAndKey, odd: OddCertificate) => Promise<CertificateAndKey>

/** Certificates that no peer may present, in both directions; `good` would be accepted. */
const BAD_CHAINS: [string, Issue][] = [
  ['one that has ended', (ca, good) => oddCertificate(ca, { ...good, from: -9, to: -1 })],
  ['one that does not hold yet', (ca, good) => oddCertificate(ca, { ...good, from: 1, to: 9 })],
  ['one for another usage', (ca, good) => oddCertificate(ca, { ...good, usage: 'codeSigning' })],
  ['one that signed itself', (_ca, good) => oddCertificate(undefined, good)],
  [
    'one of an authority that has the same name',
    async (_ca, good) => oddCertificate(await oddCertificate(undefined, { commonName: 'Sallyport CA' }), good),
  ],
  ['one whose signature is wrong', async (ca, good) => forged(await oddCertificate(ca, good))],
  ['one signed by a leaf', (ca, good) => signedByLeaf(ca, good, false)],
  ['one signed by an authority below ours, which may have none', (ca, good) => signedByLeaf(ca, good, true)],
]

async function signedByLeaf(ca: CertificateAndKey, good: OddCertificate, isAuthority: boolean) {
  const leaf = await oddCertificate(ca, { ...good, commonName: 'leaf', isAuthority })
  const made = await oddCertificate(leaf, good)
  return { certificate: made.certificate + leaf.certificate, key: made.key }
}

describe('C1 chain, usage, validity and the CA flag', () => {
  const mine: OddCertificate = { names: [{ type: 'url', value: 'urn:sallyport:runtime:demo' }] }

  test('C1 the server accepts a good certificate, made with the same tool as the bad ones', async () => {
    await startMutual()
    const { authority } = await makeWorld()
    await dial(server, { certificate: await oddCertificate(authority, mine) })
  })

  test.each([...BAD_CHAINS, serverUsage('serverAuth')])(
    'C1 the server accepts no client certificate: %s',
    async (_, issue) => {
      await startMutual()
      const { authority } = await makeWorld()
      const certificate = await issue(authority, mine)
      await expect(openWebSocket(server, { certificate })).rejects.toThrow()
      expect(server.stats().sessionsOpened).toBe(0)
      await dial(server, { certificate: await clientCertificate('demo') })
    },
  )

  // OpenSSL does not check the certificate of a resumed session, so an expired one would be let in.
  test.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'C1 no session is resumed where certificates are requested, %s',
    async version => {
      const { authority, server: ours } = await makeWorld()
      const tls = { cert: ours.certificate, key: ours.key }
      const clientCa = authority.certificate
      const start = (ca: { readonly clientCa?: string }) =>
        startTls({
          control: { port: 0, tls, tlsMin: 'TLSv1.2', ...ca },
          public: { port: 0, tls },
          ...(ca.clientCa === undefined ? {} : { access: ca }),
        })
      const doors = () => [server.controlAddress!, server.publicAddress!]
      await start({})
      const free = doors()
      await start({ clientCa })
      const asking = doors()
      expect(await server.reload()).toBe(true)
      for (const port of free.map(door => door.port)) expect(await isResumed(port, version)).toBe(true)
      for (const port of asking.map(door => door.port)) expect(await isResumed(port, version)).toBe(false)
      const routes = { routes: [] }
      await using open = await serveRouter({ routes, port: 0, tls })
      await using closed = await serveRouter({ routes, port: 0, tls: { ...tls, ca: clientCa, requestCert: true } })
      expect(await isResumed(open.address.port, version)).toBe(true)
      expect(await isResumed(closed.address.port, version)).toBe(false)
      closed.setTls({ ...tls, ca: clientCa, requestCert: true })
      expect(await isResumed(closed.address.port, version)).toBe(false)
    },
  )

  describe("at the embedder's own server", () => {
    async function attach(asks: HttpsOptions): Promise<void> {
      const { authority, server: ours } = await makeWorld()
      await startTls({ public: undefined, control: { clientCa: authority.certificate } })
      const host = createHttps({ cert: ours.certificate, key: ours.key, ca: authority.certificate, ...asks })
      stops.push(() => host.close())
      server.attach(host)
      await once(host.listen(0, '127.0.0.1'), 'listening')
      const { address, port } = host.address() as AddressInfo
      Object.defineProperty(server, 'controlAddress', { value: { host: address, port } })
    }

    const lenient = { requestCert: true, rejectUnauthorized: false }
    test.each<[string, HttpsOptions, issue?: () => Promise<CertificateAndKey>]>([
      ['that asks for none', {}],
      ['that goes on without one', lenient],
      ['that goes on with that of a stranger', lenient, () => oddCertificate(undefined, mine)],
    ])('C1 without a certificate nobody is let in where everyone needs one: one %s', async (_, asks, issue) => {
      await attach(asks)
      const certificate = await issue?.()
      await expect(openWebSocket(server, { certificate })).rejects.toMatchObject({ status: 401 })
      expect(server.stats().handshakesRefused).toEqual({ certificate: 1 })
    })

    // OpenSSL does not check it when such a server resumes a TLS session; here its clock differs from ours.
    test('C1 an expired certificate is refused', async () => {
      await attach({ requestCert: true })
      const { authority } = await makeWorld()
      const certificate = await oddCertificate(authority, { ...mine, to: 1 })
      const bearer = await token('demo', { ttl: '3d' })
      await dial(server, { certificate, token: bearer })
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * 86_400_000 })
      stops.push(() => vi.useRealTimers())
      await expect(openWebSocket(server, { certificate, token: bearer })).rejects.toMatchObject({ status: 401 })
      expect(server.stats().handshakesRefused).toEqual({ certificate: 1 })
    })
  })

  const theirs: OddCertificate = { names: [{ type: 'ip', value: '127.0.0.1' }], usage: 'serverAuth' }

  test('C1 the client accepts a good certificate', async () => {
    const { authority } = await makeWorld()
    expect(await clientTrusts(await oddCertificate(authority, theirs))).toBe(true)
  })

  test.each([...BAD_CHAINS, serverUsage('clientAuth')])(
    'C1 the client accepts no server certificate: %s',
    async (_, issue) => {
      const { authority } = await makeWorld()
      expect(await clientTrusts(await issue(authority, theirs))).toBe(false)
    },
  )
})

function serverUsage(usage: 'clientAuth' | 'serverAuth'): [string, Issue] {
  return ['one for the other end', (ca, good) => oddCertificate(ca, { ...good, usage })]
}

/** Whether our client sends its token to a server that presents `certificate`. */
async function clientTrusts(certificate: CertificateAndKey): Promise<boolean> {
  const { authority } = await makeWorld()
  let said = ''
  const endpoint = createTls({ cert: certificate.certificate, key: certificate.key }, socket => {
    socket.on('error', () => {})
    socket.on('data', bytes => {
      said += bytes
      socket.end('HTTP/1.1 418 No\r\ncontent-length: 0\r\n\r\n')
    })
  })
  endpoint.on('tlsClientError', () => {})
  endpoint.listen(0, '127.0.0.1')
  await once(endpoint, 'listening')
  stops.push(() => endpoint.close())
  const failed = Promise.withResolvers<string>()
  const bearer = await token('demo')
  const over = new AbortController()
  const connecting = connectClient({
    url: `wss://127.0.0.1:${(endpoint.address() as { port: number }).port}`,
    token: () => bearer,
    ca: authority.certificate,
    caOnly: true,
    proxy: '',
    connections: 1,
    target: 'http://127.0.0.1:1',
    signal: over.signal,
    on: { reconnecting: ({ reason }) => failed.resolve(reason) },
  })
  const reason = await failed.promise
  over.abort()
  await expect(connecting).rejects.toThrow()
  expect(reason.includes('certificate'), reason).toBe(said === '')
  return said.includes(bearer)
}

describe('C2 identity is the subject alternative name', () => {
  test.each<[string, OddCertificate]>([
    ['the common name alone', { commonName: 'demo' }],
    ['a common name beside another alternative name', { commonName: 'demo', names: [uri('other')] }],
    ['upper case', { names: [uri('DEMO')] }],
    ['a longer name', { names: [uri('demo2')] }],
    ['a name that begins with another', { names: [uri('demo/other')] }],
    [
      'a name with a comma, which holds ours',
      { names: [{ type: 'url', value: 'urn:x, URI:urn:sallyport:runtime:demo, URI:urn:y' }] },
    ],
    ['a DNS name beside the URI of another runtime', { names: [{ type: 'dns', value: 'demo' }, uri('other')] }],
    ['a DNS name that holds ours', { names: [{ type: 'dns', value: 'demo.example.com' }] }],
  ])('C2 %s is not the runtime', async (_name, odd) => {
    await startMutual()
    const { authority } = await makeWorld()
    const refused = event(server, 'refused')
    const certificate = await oddCertificate(authority, odd)
    await expect(openWebSocket(server, { certificate })).rejects.toMatchObject({ status: 401 })
    expect((await refused).reason).toBe('certificate')
    expect(server.stats().sessionsOpened).toBe(0)
  })

  test('C2 the common name does not override the alternative name', async () => {
    await startMutual()
    const { authority } = await makeWorld()
    await dial(server, { certificate: await oddCertificate(authority, { commonName: 'other', names: [uri('demo')] }) })
  })

  test("C2 the client ignores a server's common name", async () => {
    const { authority } = await makeWorld()
    const names = [{ type: 'dns', value: 'other.example.com' }] as const
    const certificate = await oddCertificate(authority, { commonName: '127.0.0.1', names, usage: 'serverAuth' })
    expect(await clientTrusts(certificate)).toBe(false)
  })
})

function uri(runtime: string): { type: 'url'; value: string } {
  return { type: 'url', value: `urn:sallyport:runtime:${runtime}` }
}

describe('C3 token and certificate name the same runtime', () => {
  test("C3 another runtime's certificate is refused", async () => {
    await startMutual()
    const refused = event(server, 'refused')
    const certificate = await clientCertificate('other')
    await expect(openWebSocket(server, { certificate })).rejects.toMatchObject({ status: 401 })
    expect((await refused).reason).toBe('certificate')
    await dial(server, { runtime: 'other', certificate })
  })

  test('C3 a client without a certificate is refused where one is required', async () => {
    await startMutual()
    await expect(openWebSocket(server, {})).rejects.toThrow()
    expect(server.stats().sessionsOpened).toBe(0)
  })

  test('C3 a token bound to a certificate works with that one only, also when it is renewed', async () => {
    await startMutual()
    const mine = await clientCertificate('demo')
    const another = await clientCertificate('demo')
    const bound = await token('demo', { certificate: mine.certificate })
    await expect(openWebSocket(server, { token: bound, certificate: another })).rejects.toMatchObject({ status: 401 })
    const client = await dial(server, { token: bound, certificate: mine })
    client.session.control({ type: 'reauth', token: await token('demo', { certificate: another.certificate }) })
    await client.message('reauth-refused')
    client.session.control({ type: 'reauth', token: await token('demo', { certificate: mine.certificate }) })
    await client.message('reauth-ok')
  })

  test('C3 a bound token is useless without a certificate', async () => {
    await startTls()
    const mine = await clientCertificate('demo')
    const bound = await token('demo', { certificate: mine.certificate })
    await expect(openWebSocket(server, { token: bound })).rejects.toMatchObject({ status: 401 })
  })
})

async function connect(options: ConnectionOptions): Promise<TLSSocket> {
  const { authority } = await makeWorld()
  const { host, port } = server.publicAddress!
  const socket = connectTls({ host, port, ca: authority.certificate, ...options })
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => resolve(socket))
    socket.once('error', reject)
  })
}

describe('C4 files reload without a restart', () => {
  test('C4 new connections use a new certificate, a bad one keeps the old one, and no session is lost', async () => {
    const made = await makeWorld()
    const folder = await temporaryFolder()
    const put = async (name: string, text: string) => {
      await writeFile(join(folder, `${name}.new`), text)
      await rename(join(folder, `${name}.new`), join(folder, name))
    }
    await put('cert.pem', made.server.certificate)
    await put('key.pem', made.server.key)
    const errors: string[] = []
    const infos: string[] = []
    const logger = {
      debug() {},
      info: (_fields: object, message: string) => infos.push(message),
      warn() {},
      error: (_fields: object, message: string) => errors.push(message),
    }
    const tls = { cert: { file: join(folder, 'cert.pem') }, key: { file: join(folder, 'key.pem') } }
    await startTls({ public: { port: 0, tls }, control: { port: 0, tls }, logger })
    const client = await dial(server, { handler: always('still here') })
    const held = await connect({ servername: EDGE_NAME })
    const serial = async () => {
      const socket = await connect({ servername: EDGE_NAME })
      const found = socket.getPeerCertificate().serialNumber
      socket.destroy()
      return found
    }
    const before = await serial()
    for (const bad of ['nonsense', '', made.authority.certificate]) {
      await put('cert.pem', bad)
      expect(await server.reload()).toBe(false)
    }
    expect(errors).not.toHaveLength(0)
    expect(await serial()).toBe(before)
    const fresh = await createServerCertificate(made.authority, { hosts: [`*.${DOMAIN}`, CONTROL_NAME, '127.0.0.1'] })
    await put('key.pem', fresh.key)
    await put('cert.pem', fresh.certificate)
    // The watcher notices by itself.
    await eventually(async () => expect(await serial()).not.toBe(before))
    expect(infos).toContain('certificate reloaded')
    await dial(server)
    // What was connected under the old certificate stays connected, at both ends.
    const answered = once(held, 'data')
    held.write(`GET / HTTP/1.1\r\nhost: ${EDGE_NAME}\r\n\r\n`)
    expect(String(await answered)).toMatch(/^HTTP\/1\.1 200 /)
    held.destroy()
    expect(client.session.closed).toBe(false)
    expect(server.stats().sessionsEnded).toBe(0)
  })
})

describe("OCSP responses for the edge's certificate", () => {
  /** An `OCSPResponse` with only a status; appending NULL makes a different one. */
  const response = (status: number, more = '') =>
    Buffer.from(`30${more === '' ? '03' : '05'}0a010${status}${more}`, 'hex')
  async function stapled(): Promise<string | undefined> {
    const { authority } = await makeWorld()
    const { host, port } = server.publicAddress!
    const ca = authority.certificate
    const socket = connectTls({ host, port, ca, servername: EDGE_NAME, requestOCSP: true })
    let bytes: Buffer | null | undefined
    socket.on('OCSPResponse', (heard: Buffer | null) => {
      bytes = heard
    })
    await once(socket, 'secureConnect')
    socket.destroy()
    return bytes?.toString('hex')
  }

  test('C4 an OCSP response is stapled and read again when it changes, and a bad one keeps the old one', async () => {
    const made = await makeWorld()
    const file = join(await temporaryFolder(), 'ocsp.der')
    const tls = { cert: made.server.certificate, key: made.server.key }
    await writeFile(file, response(6))
    await expect(startTls({ public: { port: 0, tls: { ...tls, ocsp: { file } } } })).rejects.toThrow(
      'not a successful one',
    )
    await writeFile(file, response(0))
    await startTls({ public: { port: 0, tls: { ...tls, ocsp: { file } } } })
    expect(await stapled()).toBe(response(0).toString('hex'))
    await writeFile(file, 'nonsense')
    expect(await server.reload()).toBe(false)
    expect(await stapled()).toBe(response(0).toString('hex'))
    await writeFile(file, response(0, '0500'))
    expect(await server.reload()).toBe(true)
    expect(await stapled()).toBe(response(0, '0500').toString('hex'))
    // Without a file nothing is stapled.
    expect(await server.reload({ publicTls: tls })).toBe(true)
    expect(await stapled()).toBeUndefined()
  })
})

describe('C5 our keys', () => {
  const mode = async (path: string) => (await stat(path)).mode & 0o777
  test('C5 are readable by their owner only, and nothing is replaced without --force', async () => {
    const out = await temporaryFolder()
    const init = ['certs', 'init', '--out', out, '--host', 'a.example.com']
    const client = ['certs', 'client', '--out', out, '--runtime', 'demo']
    const keys = ['keys', 'create', '--out', out]
    const secrets: string[] = []
    for (const [args, files] of [
      [init, ['ca-key.pem', 'server-key.pem']],
      [client, ['demo-key.pem']],
      [keys, ['private.jwk']],
    ] as const) {
      expect((await sallyport([...args])).code).toBe(0)
      for (const file of files) expect(await mode(join(out, file)), file).toBe(0o600)
      secrets.push(...files)
    }
    const contents = () => Promise.all(secrets.map(file => readFile(join(out, file), 'utf8')))
    const before = await contents()
    for (const args of [init, client, keys]) expect((await sallyport([...args])).code).not.toBe(0)
    expect(await contents()).toEqual(before)
    for (const args of [init, client, keys]) expect((await sallyport([...args, '--force'])).code).toBe(0)
    const after = await contents()
    for (const [i, text] of after.entries()) expect(text, secrets[i]).not.toBe(before[i])
    for (const file of secrets) expect(await mode(join(out, file)), file).toBe(0o600)
  })

  test.runIf(existsSync(join(ROOT, '.git')))('C5 are in no commit, and so in no package', () => {
    const git = (...args: string[]) => spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' })
    const tracked = git('ls-files').stdout.split('\n')
    expect(tracked).toContain('package.json')
    expect(tracked.filter(path => /\.(pem|jwk|p12|key|crt)$/.test(path))).toEqual([])
    // A line by itself, as in a file with a key.
    expect(git('grep', '-lE', '-e', '^-----BEGIN ([A-Z]+ )?PRIVATE KEY-----$').stdout).toBe('')
    expect(git('grep', '-lE', '-e', '"d": *"[A-Za-z0-9_-]{40,}"').stdout).toBe('')
  })
})

describe('C6 no ClientHello kills a process', () => {
  const HELLOS: [string, ConnectionOptions][] = [
    ['a protocol that nobody speaks', { servername: EDGE_NAME, ALPNProtocols: ['x'.repeat(200)] }],
    ['many protocols', { servername: EDGE_NAME, ALPNProtocols: Array.from({ length: 100 }, (_, i) => `p${i}`) }],
    ['a name of nobody', { servername: 'nobody.example.org' }],
    ['a long name', { servername: `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(60)}` }],
    ['__proto__ as a name', { servername: '__proto__' }],
    ['ciphers that we do not take', { servername: EDGE_NAME, maxVersion: 'TLSv1.2', ciphers: 'AES128-SHA' }],
    [
      'an old version',
      { servername: EDGE_NAME, maxVersion: 'TLSv1.1', minVersion: 'TLSv1', ciphers: 'ALL@SECLEVEL=0' },
    ],
  ]

  test.each(['shared', 'apart'])('C6 addresses %s', async kind => {
    const made = await makeWorld()
    const tls = { cert: made.server.certificate, key: made.server.key }
    const control = kind === 'shared' ? { tls, hostName: CONTROL_NAME } : { port: 0, tls }
    await startTls({ public: { port: 0, tls }, control })
    await dial(server, { handler: always('unhurt') })
    for (const { host, port } of [server.publicAddress!, server.controlAddress!]) {
      for (const [, options] of HELLOS) {
        const socket = connectTls({ host, port, ca: made.authority.certificate, ...options })
        await new Promise(resolve => socket.once('secureConnect', resolve).once('error', resolve))
        socket.destroy()
      }
      for (const bytes of oddRecords()) {
        const socket = connectTcp({ host, port })
        socket.on('error', () => {})
        socket.resume().end(bytes, () => socket.destroy())
        await once(socket, 'close')
      }
    }
    const ca = made.authority.certificate
    expect((await call(server, EDGE_NAME, '/', { ca, servername: EDGE_NAME })).text).toBe('unhurt')
    await dial(server)
  })

  /** Records that end early, lie about their lengths, or are not records at all. */
  function oddRecords(): Buffer[] {
    const hello = Buffer.from('16030100300100002c0303', 'hex')
    return [
      Buffer.from([0x16]),
      Buffer.from([0x16, 3, 1, 0xff, 0xff]),
      Buffer.from([0x15, 3, 1, 0, 2, 2, 40]),
      Buffer.from([0x16, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]),
      Buffer.concat([hello, Buffer.alloc(37, 0xff)]),
      Buffer.alloc(20_000, 0x16),
      Buffer.from([0x80, 0x2e, 1, 0, 2]),
    ]
  }
})

test('a certificate from createClientCertificate passes the checks that the odd ones fail', async () => {
  await startMutual()
  const { authority } = await makeWorld()
  await dial(server, { certificate: await createClientCertificate(authority, { runtime: 'demo' }) })
})
