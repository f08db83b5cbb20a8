import { once } from 'node:events'
import { createServer as createHttp, type IncomingMessage } from 'node:http'
import { createServer as createHttps, type ServerOptions } from 'node:https'
import { type AddressInfo, connect, createServer as createTcp, type Server, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type WebSocket, WebSocketServer } from 'ws'
import { createAuthority, createClientCertificate, createServerCertificate } from '../../../certs/index.ts'
import { type DialOptions, dialServer } from '../../../client/dial/dial.ts'
import { DialError } from '../../../client/dial/dial-failure.ts'
import { explain } from '../../../client/dial/explain.ts'
import { parseProxy } from '../../../client/dial/proxy.ts'
import { Resolver } from '../../../client/dial/resolve.ts'
import { createTrust } from '../../../client/dial/trust.ts'
import { formatAddress } from '../../../protocol/base/host-port.ts'
import { LateListener } from '../../support/late-listener.ts'
import { oddCertificate } from '../../support/odd-certificates.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'
import { answeringBadly } from '../../support/tls-faults.ts'
import { eventually, until } from '../../support/until.ts'

let secrets: Secrets
const open: { close(): void }[] = []
const sockets = new Set<Duplex>()

beforeAll(async () => {
  secrets = await makeSecrets()
})

afterEach(() => {
  for (const socket of sockets) socket.destroy()
  sockets.clear()
  for (const server of open.splice(0)) server.close()
})

async function listen(server: Server): Promise<number> {
  server.on('connection', socket => sockets.add(socket))
  open.push(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

interface Endpoint {
  readonly port: number
  readonly requests: IncomingMessage[]
}

/** A control endpoint that accepts everybody, or answers with what `refuse` returns; null: the test answers. */
async function endpoint(
  options: { tls?: ServerOptions | false; protocol?: string | false; refuse?: string | null } = {},
): Promise<Endpoint> {
  const server = options.tls === false ? createHttp() : createHttps({ ...secrets.server, ...options.tls })
  const requests: IncomingMessage[] = []
  const handleProtocols = () => options.protocol ?? 'sallyport.v1'
  const webSockets = new WebSocketServer({ noServer: true, handleProtocols })
  server.on('upgrade', (request, socket, head) => {
    requests.push(request)
    if (options.refuse === null) return
    if (options.refuse !== undefined) socket.end(options.refuse)
    else webSockets.handleUpgrade(request, socket, head, ws => ws.on('error', () => {}))
  })
  server.on('tlsClientError', () => {})
  return { port: await listen(server), requests }
}

function optionsFor(port: number, more: Partial<DialOptions> = {}): DialOptions {
  return {
    server: new URL(`wss://127.0.0.1:${port}`),
    token: 'to.ke.n',
    trust: createTrust({ ca: secrets.ca, caOnly: true }),
    proxy: undefined,
    timeoutMs: 5000,
    turn: 0,
    resolver: new Resolver(undefined),
    signal: new AbortController().signal,
    ...more,
  }
}

async function opened(options: DialOptions): Promise<WebSocket> {
  const { socket } = await dialServer(options)
  open.push({ close: () => socket.terminate() })
  return socket
}

/** The sentence that the client would show. */
async function failure(options: DialOptions): Promise<string> {
  const error = await dialServer(options).then(
    () => expect.unreachable('it opened'),
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(DialError)
  const proxy = options.proxy
  return explain((error as DialError).failure, {
    server: options.server,
    connectTo: options.connectTo && formatAddress(options.connectTo),
    token: options.token,
    audience: 'sallyport',
    nowMs: Date.now(),
    proxy: proxy && { address: `${proxy.host}:${proxy.port}`, credentials: proxy.authorization !== undefined },
    clientCertificate: false,
  })
}

describe('dial', () => {
  it('opens a WebSocket with path, subprotocol and token, over TLS 1.3, without compression', async () => {
    const { port, requests } = await endpoint()
    const socket = await opened(optionsFor(port))
    expect(socket.protocol).toBe('sallyport.v1')
    expect(socket.extensions).toBe('')
    const [request] = requests
    expect(request).toMatchObject({ method: 'GET', url: '/tunnel/v1/connect' })
    expect(request!.headers).toMatchObject({
      authorization: 'Bearer to.ke.n',
      host: `127.0.0.1:${port}`,
      'sec-websocket-protocol': 'sallyport.v1',
    })
    expect(request!.headers['sec-websocket-extensions']).toBeUndefined()
    expect(request!.headers.origin).toBeUndefined()
    expect((request!.socket as Socket & { getProtocol(): string }).getProtocol()).toBe('TLSv1.3')
  })

  it.each(['wss', 'ws'])('%s: leaves nothing open if a step throws as it begins', async scheme => {
    const { port } = await endpoint({ tls: scheme === 'ws' ? false : {} })
    const server = new URL(`${scheme}://127.0.0.1:${port}`)
    await expect(dialServer(optionsFor(port, { server, token: 'in two\nlines' }))).rejects.toThrow(/header content/)
    await eventually(() => expect([...sockets].map(({ destroyed }) => destroyed)).toEqual([true]))
  })

  it("keeps the address's path prefix", async () => {
    const { port, requests } = await endpoint()
    await opened(optionsFor(port, { server: new URL(`wss://127.0.0.1:${port}/edge/`) }))
    expect(requests[0]!.url).toBe('/edge/tunnel/v1/connect')
  })

  it('sends the name as SNI and resolves *.localhost itself', async () => {
    const certificate = await createServerCertificate(secrets.authority, { hosts: ['*.tunnels.localhost'] })
    const { port, requests } = await endpoint({ tls: { cert: certificate.certificate, key: certificate.key } })
    await opened(optionsFor(port, { server: new URL(`wss://connect.tunnels.localhost:${port}`) }))
    expect((requests[0]!.socket as Socket & { servername: string }).servername).toBe('connect.tunnels.localhost')
  })

  it('leaves the final dot of a name out of SNI', async () => {
    const certificate = await createServerCertificate(secrets.authority, { hosts: ['gate.tunnels.test'] })
    const { port, requests } = await endpoint({ tls: { cert: certificate.certificate, key: certificate.key } })
    const connectTo = { host: '127.0.0.1', port }
    await opened(optionsFor(1, { server: new URL('wss://gate.tunnels.test.'), connectTo }))
    expect((requests[0]!.socket as Socket & { servername: string }).servername).toBe('gate.tunnels.test')
  })

  it('dials another address, and is still strict about the name', async () => {
    const certificate = await createServerCertificate(secrets.authority, { hosts: ['gate.tunnels.test'] })
    const { port, requests } = await endpoint({ tls: { cert: certificate.certificate, key: certificate.key } })
    const connectTo = { host: '127.0.0.1', port }
    await opened(optionsFor(1, { server: new URL('wss://gate.tunnels.test:8443'), connectTo }))
    const [{ headers, socket }] = requests as [IncomingMessage]
    expect([headers.host, (socket as Socket & { servername: string }).servername]).toEqual([
      'gate.tunnels.test:8443',
      'gate.tunnels.test',
    ])
    expect(await failure(optionsFor(1, { server: new URL('wss://other.tunnels.test'), connectTo }))).toBe(
      `the certificate of 127.0.0.1:${port} (--connect-to, for other.tunnels.test:443) is for gate.tunnels.test, not for other.tunnels.test`,
    )
    expect(requests).toHaveLength(1)
  })

  it('speaks plain ws to loopback', async () => {
    const { port } = await endpoint({ tls: false })
    const socket = await opened(optionsFor(port, { server: new URL(`ws://localhost:${port}`) }))
    expect(socket.protocol).toBe('sallyport.v1')
  })

  it('shows a client certificate', async () => {
    const client = await createClientCertificate(secrets.authority, { runtime: 'prod' })
    const { port, requests } = await endpoint({ tls: { ca: secrets.ca, requestCert: true, rejectUnauthorized: true } })
    const tls = { cert: client.certificate, key: client.key }
    await opened(optionsFor(port, { trust: createTrust({ ca: secrets.ca, caOnly: true, tls }) }))
    expect((requests[0]!.socket as Socket & { authorized: boolean }).authorized).toBe(true)
    expect(await failure(optionsFor(port))).toBe(
      `127.0.0.1:${port} wants a client certificate: give --tls.cert and --tls.key`,
    )
  })

  it('adds --ca to the system store, and trusts only it with caOnly', async () => {
    const { port } = await endpoint()
    await opened(optionsFor(port, { trust: createTrust({ ca: secrets.ca }) }))
    const other = await createAuthority({ name: 'Another CA' })
    const trust = createTrust({ ca: other.certificate, caOnly: true })
    expect(await failure(optionsFor(port, { trust }))).toBe(
      `the certificate of 127.0.0.1:${port} was issued by "Sallyport test CA", which is not trusted here: give that CA's certificate with --ca FILE`,
    )
  })
})

describe('a dial that fails', () => {
  it('reports the answer to the upgrade', async () => {
    const body = '{"requestId":"9b1"}'
    const refuse = `HTTP/1.1 401 Unauthorized\r\ndate: ${new Date().toUTCString()}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    const { port } = await endpoint({ refuse })
    expect(await failure(optionsFor(port))).toBe('refused (401, request 9b1): the token that you gave is not a JWT')
  })

  it('reports the public port', async () => {
    const refuse = 'HTTP/1.1 404 Not Found\r\nsallyport-error: unknown-host\r\ncontent-length: 0\r\n\r\n'
    const { port } = await endpoint({ refuse })
    expect(await failure(optionsFor(port))).toContain('is for callers, not for clients')
  })

  it('reads an endless answer no further than it must', async () => {
    const { port, requests } = await endpoint({ refuse: null })
    const failed = failure(optionsFor(port))
    await until(() => requests.length > 0)
    // It never ends: neither by its length nor with its connection.
    const { socket } = requests[0]!
    socket.on('error', () => {})
    socket.write(`HTTP/1.1 403 Forbidden\r\ncontent-length: 1000000\r\n\r\n${'x'.repeat(100_000)}`)
    expect(await failed).toContain('answered 403 instead of opening a WebSocket')
  })

  it.each([['chat'], [false]])('reports another subprotocol (%s)', async protocol => {
    const { port } = await endpoint({ protocol: protocol as string | false })
    const theirs = protocol === false ? 'another version of the protocol' : '"chat"'
    expect(await failure(optionsFor(port))).toBe(
      `127.0.0.1:${port} speaks ${theirs}, and this client "sallyport.v1": update the older of the two`,
    )
  })

  it('reports a refused port', async () => {
    const server = createTcp()
    const port = await listen(server)
    server.close()
    await once(server, 'close')
    expect(await failure(optionsFor(port))).toBe(`nothing is listening at 127.0.0.1:${port} (connection refused)`)
  })

  it('reports a name that does not resolve', async () => {
    const resolver = new Resolver((name, _options, callback) =>
      callback(Object.assign(new Error(`getaddrinfo ENOTFOUND ${name}`), { code: 'ENOTFOUND' }), '', 4),
    )
    const server = new URL('wss://no-such-name.example')
    expect(await failure(optionsFor(1, { server, resolver }))).toBe('the name no-such-name.example does not resolve')
    const connectTo = { host: 'balancer.example', port: 443 }
    expect(await failure(optionsFor(1, { server, connectTo, resolver }))).toBe(
      'the name balancer.example does not resolve',
    )
  })

  it('reports a certificate for another name', async () => {
    const certificate = await createServerCertificate(secrets.authority, { hosts: ['a.example.com', 'b.example.com'] })
    const { port } = await endpoint({ tls: { cert: certificate.certificate, key: certificate.key } })
    expect(await failure(optionsFor(port))).toBe(
      `the certificate of 127.0.0.1:${port} is for a.example.com and b.example.com, not for 127.0.0.1`,
    )
  })

  it('reports an authority whose certificate has expired, or is not valid yet', async () => {
    for (const [from, to, when] of [
      [-9, -2, 'expired 2 d ago'],
      [1.52, 9, 'is not valid for another 1 d 12 h'],
    ] as const) {
      const root = await createAuthority({ name: 'Root' })
      const middle = await oddCertificate(root, {
        commonName: 'Middle',
        isAuthority: true,
        usage: ['serverAuth'],
        from,
        to,
      })
      const leaf = await oddCertificate(middle, { usage: 'serverAuth', names: [{ type: 'ip', value: '127.0.0.1' }] })
      const { port } = await endpoint({ tls: { cert: leaf.certificate + middle.certificate, key: leaf.key } })
      const trust = createTrust({ ca: root.certificate, caOnly: true })
      expect(await failure(optionsFor(port, { trust }))).toContain(
        `the certificate of "Middle", an authority of 127.0.0.1:${port}, ${when}`,
      )
    }
  })

  it('sends no token to a server that it does not trust', async () => {
    const { port, requests } = await endpoint()
    const trust = createTrust({ ca: (await createAuthority({ name: 'Another CA' })).certificate, caOnly: true })
    await failure(optionsFor(port, { trust }))
    expect(requests).toEqual([])
  })

  it('reports a port without TLS', async () => {
    const { port } = await endpoint({ tls: false })
    expect(await failure(optionsFor(port))).toContain(`127.0.0.1:${port} does not speak TLS`)
  })

  it('reports old TLS', async () => {
    const { port } = await endpoint({ tls: { maxVersion: 'TLSv1.2' } })
    expect(await failure(optionsFor(port))).toMatch(/does not speak TLS 1\.3: .* --tls\.min 1\.2 allows it$/)
    await opened(optionsFor(port, { trust: createTrust({ ca: secrets.ca, minVersion: 'TLSv1.2' }) }))
  })

  it('ends at its deadline, at whichever step the other end is silent', async () => {
    const port = await listen(createTcp(() => {}))
    expect(await failure(optionsFor(port, { timeoutMs: 100 }))).toBe(
      `no answer from 127.0.0.1:${port} to the TLS handshake within 100 ms`,
    )
    const server = new URL(`ws://127.0.0.1:${port}`)
    expect(await failure(optionsFor(port, { server, timeoutMs: 100 }))).toBe(
      `no answer from 127.0.0.1:${port} within 100 ms`,
    )
    const resolver = { resolve: () => new Promise<never>(() => {}) } as unknown as Resolver
    expect(await failure(optionsFor(port, { resolver, timeoutMs: 100 }))).toBe(
      'no answer from the resolver to the name 127.0.0.1 within 100 ms',
    )
    const late = await LateListener.start()
    expect(await failure(optionsFor(late.port, { timeoutMs: 100 }))).toBe(
      `no answer from 127.0.0.1:${late.port} within 100 ms`,
    )
    await late.stop()
  })

  it('reports an answer that is not HTTP', async () => {
    const { port } = await endpoint({ refuse: 'SSH-2.0-OpenSSH_9.2\r\n' })
    expect(await failure(optionsFor(port))).toBe(
      `127.0.0.1:${port}: Parse Error: Expected HTTP/, RTSP/ or ICE/ (HPE_INVALID_CONSTANT)`,
    )
  })

  it('reports a bad handshake, whatever comes behind it', async () => {
    const fields = ['connection: upgrade', 'upgrade: websocket', 'sec-websocket-protocol: sallyport.v1']
    const answer = ['HTTP/1.1 101 x', ...fields, 'sec-websocket-accept: x', '', ''].join('\r\n')
    const port = await listen(answeringBadly(secrets, answer))
    expect(await failure(optionsFor(port))).toBe(`127.0.0.1:${port}: Invalid Sec-WebSocket-Accept header`)
  })

  it('reports a server that hangs up', async () => {
    const port = await listen(createTcp(socket => socket.destroy()))
    const server = new URL(`ws://127.0.0.1:${port}`)
    expect(await failure(optionsFor(port, { server }))).toBe(
      `127.0.0.1:${port} closed the connection without an answer`,
    )
  })

  it("ends with the signal's reason", async () => {
    const port = await listen(createTcp(() => {}))
    const stop = new AbortController()
    const result = dialServer(optionsFor(port, { signal: stop.signal })).catch((error: unknown) => error)
    stop.abort(new Error('enough'))
    expect(await result).toEqual(new Error('enough'))
    expect(await dialServer(optionsFor(port, { signal: stop.signal })).catch((error: unknown) => error)).toEqual(
      new Error('enough'),
    )
  })

  it('does not wait for a resolver once it is aborted', async () => {
    const resolver = { resolve: () => new Promise<never>(() => {}) } as unknown as Resolver
    const signal = AbortSignal.abort(new Error('enough'))
    await expect(dialServer(optionsFor(1, { resolver, signal }))).rejects.toThrow('enough')
  })
})

describe('through a proxy', () => {
  const seen: { url: string | undefined; authorization: string | undefined }[] = []

  /** A CONNECT proxy; `answer` instead of a connection if given. */
  async function proxy(options: { answer?: string; credentials?: string; tls?: boolean } = {}): Promise<number> {
    seen.length = 0
    const server = options.tls ? createHttps(secrets.server) : createHttp()
    server.on('connect', (request: IncomingMessage, socket: Duplex) => {
      socket.on('error', () => {})
      const authorization = request.headers['proxy-authorization']
      seen.push({ url: request.url, authorization })
      const wanted = options.credentials && `Basic ${Buffer.from(options.credentials).toString('base64')}`
      if (options.answer !== undefined) return socket.end(options.answer)
      if (wanted && authorization !== wanted) {
        return socket.end('HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm="a:b"\r\n\r\n')
      }
      const port = Number(request.url!.split(':').at(-1))
      const upstream = connect(port, '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n')
        upstream.pipe(socket).pipe(upstream)
      })
      sockets.add(upstream)
      return upstream.on('error', () => socket.destroy())
    })
    return await listen(server)
  }

  it('uses CONNECT, and resolves nothing itself', async () => {
    const { port } = await endpoint()
    const through = parseProxy(`http://127.0.0.1:${await proxy()}`)
    await opened(optionsFor(port, { proxy: through }))
    expect(seen).toEqual([{ url: `127.0.0.1:${port}`, authorization: undefined }])
    const named = new URL(`wss://gate.tunnels.test:${port}`)
    await opened(optionsFor(port, { server: named, proxy: through }))
    expect(seen.at(-1)!.url).toBe(`gate.tunnels.test:${port}`)
    await opened(optionsFor(1, { connectTo: { host: '::1', port }, proxy: through }))
    expect(seen.at(-1)!.url).toBe(`[::1]:${port}`)
  })

  it('sends credentials, over TLS if the proxy has it', async () => {
    const { port } = await endpoint()
    const through = parseProxy(`https://us:pass@127.0.0.1:${await proxy({ credentials: 'us:pass', tls: true })}`)
    const socket = await opened(optionsFor(port, { proxy: through }))
    expect(socket.protocol).toBe('sallyport.v1')
  })

  it('explains a 407', async () => {
    const { port } = await endpoint()
    const address = `127.0.0.1:${await proxy({ credentials: 'us:pass' })}`
    expect(await failure(optionsFor(port, { proxy: parseProxy(`http://${address}`) }))).toBe(
      `the proxy ${address} wants credentials (407): write http://user:password@${address}`,
    )
    expect(await failure(optionsFor(port, { proxy: parseProxy(`http://us:wrong@${address}`) }))).toBe(
      `the proxy ${address} did not accept the credentials (407)`,
    )
  })

  it.each([
    ['a refusal', 'HTTP/1.1 403 Forbidden\r\n\r\n', 'did not connect to'],
    [
      'a scheme that no other has',
      'HTTP/1.1 407 No\r\nproxy-authenticate: \x1b[31mx\r\n\r\n',
      'wants credentials (407)',
    ],
    [
      'Basic among other schemes',
      'HTTP/1.1 407 No\r\nproxy-authenticate: Negotiate\r\nproxy-authenticate: NTLM, basic realm="a"\r\n\r\n',
      'wants credentials (407)',
    ],
    [
      'only other schemes',
      'HTTP/1.1 407 No\r\nproxy-authenticate: Negotiate\r\nproxy-authenticate: NTLM\r\n\r\n',
      'wants Negotiate authentication (407)',
    ],
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n\r\n', 'the answer of the proxy is not HTTP'],
    ['an endless head', `HTTP/1.1 200 OK\r\nx: ${'x'.repeat(20_000)}`, 'the answer of the proxy is too long'],
    [
      'a head just beyond the limit, all at once',
      `${'x'.repeat(16_385)}\r\n\r\n`,
      'the answer of the proxy is too long',
    ],
    ['a head at the limit', `${'x'.repeat(16_384)}\r\n\r\n`, 'the answer of the proxy is not HTTP'],
    ['bytes after its answer', 'HTTP/1.1 200 OK\r\n\r\nhello', 'the proxy sent too much'],
    ['nothing, and then the end', '', 'closed the connection'],
  ])('survives %s', async (_name, answer, message) => {
    const { port } = await endpoint()
    const through = parseProxy(`http://127.0.0.1:${await proxy({ answer })}`)
    expect(await failure(optionsFor(port, { proxy: through }))).toContain(message)
  })
})
