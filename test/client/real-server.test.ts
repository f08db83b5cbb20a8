import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createClientCertificate, createKeys, createToken } from '../../certs/index.ts'
import { type ClientOptions, connect, createTunnel, type TunnelEvents } from '../../client/index.ts'
import { createServer, type Server } from '../../server/index.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'

let secrets: Secrets
let server: Server
let keys: Awaited<ReturnType<typeof createKeys>>

beforeAll(async () => {
  secrets = await makeSecrets()
  keys = await createKeys()
  server = await createServer({
    public: { port: 0, tls: secrets.server },
    control: { port: 0, tls: secrets.server },
    domains: [DOMAIN],
    auth: { jwks: keys.jwks },
  })
})

afterAll(async () => {
  await server.close({ graceMs: 0 })
})

const token = async (more: Partial<Parameters<typeof createToken>[0]> = {}) =>
  (await createToken({ key: keys.privateJwk, runtime: 'demo', ttl: '1h', ...more })).token

function optionsFor(more: Partial<ClientOptions> = {}): ClientOptions {
  return {
    url: `wss://127.0.0.1:${server.controlAddress?.port}`,
    token: () => token(),
    ca: secrets.ca,
    proxy: '',
    target: request => new Response(new URL(request.url).pathname),
    ...more,
  }
}

/** The first thing that a client with these options reports about its failure. */
async function complaint(more: Partial<ClientOptions>): Promise<TunnelEvents['reconnecting'] & { refused: boolean }> {
  let refused = false
  const reported = Promise.withResolvers<TunnelEvents['reconnecting']>()
  const on = {
    refused: () => {
      refused = true
    },
    reconnecting: reported.resolve,
  }
  const tunnel = createTunnel(optionsFor({ connections: 1, on, ...more }))
  const event = await reported.promise
  await tunnel.close({ graceMs: 0 })
  return { ...event, refused }
}

const REFUSED = /^refused \(401, request [0-9a-f-]{36}\): /

describe('a real server refuses, and the client explains', () => {
  it('an expired token', async () => {
    const { reason, refused, inMs } = await complaint({ token: await token({ now: Date.now() - 3_790_000 }) })
    expect(reason).toMatch(REFUSED)
    expect(reason.replace(REFUSED, '')).toMatch(/^your token expired [3-9] min \d+ s ago$/)
    expect(refused).toBe(true)
    expect(inMs).toBeGreaterThanOrEqual(5000)
  })

  it('another audience', async () => {
    const { reason } = await complaint({ token: await token({ audience: 'frp' }) })
    expect(reason.replace(REFUSED, '')).toBe('your token is for the audience "frp", not for "sallyport"')
  })

  it('a key that it does not know', async () => {
    const other = await createKeys()
    const { reason } = await complaint({ token: await token({ key: other.privateJwk }) })
    expect(reason.replace(REFUSED, '')).toBe(
      'the server did not accept your token for runtime "demo"; its log gives the reason under this request',
    )
  })

  it('the public port', async () => {
    const port = server.publicAddress?.port
    const { reason, refused } = await complaint({ url: `wss://127.0.0.1:${port}` })
    expect(reason).toBe(
      `127.0.0.1:${port} is for callers, not for clients: dial the name of the server's --control.host, or the address of its --control.listen`,
    )
    expect(refused).toBe(false)
  })

  it('an authority that it does not know', async () => {
    const { reason } = await complaint({ ca: undefined })
    expect(reason).toBe(
      `the certificate of 127.0.0.1:${server.controlAddress?.port} was issued by "Sallyport test CA", which is not trusted here: give that CA's certificate with --ca FILE`,
    )
  })
})

describe('a pair', () => {
  it('comes up as soon as the client has the right authority', async () => {
    const stranger = await makeSecrets()
    const reported = Promise.withResolvers<string>()
    const on = { reconnecting: ({ reason }: TunnelEvents['reconnecting']) => reported.resolve(reason) }
    const backoff = { firstMs: 600_000, capMs: 600_000 }
    const tunnel = createTunnel(optionsFor({ ca: stranger.ca, caOnly: true, on, backoff, random: () => 0.9 }))
    expect(await reported.promise).toContain('which is not trusted here')
    expect(() => tunnel.setTrust({ ca: 'x', tls: undefined })).toThrow(TypeError)
    tunnel.setTrust({ ca: secrets.ca, tls: undefined })
    await tunnel.connected()
    await tunnel.close({ graceMs: 0 })
  })

  it('serves, and renews its token in band without a new session', async () => {
    await using tunnel = await connect(optionsFor({ connections: 1 }))
    const [before] = server.sessions()
    await tunnel.refreshToken()
    const response = await server.fetch('demo', `https://demo.${DOMAIN}/a/b`)
    expect(await response.text()).toBe('/a/b')
    expect(server.sessions().map(({ id }) => id)).toEqual([before?.id])
    await tunnel.close({ graceMs: 1000 })
    expect(tunnel.ready()).toBe(false)
  })

  it('tells when its token ends, also once that is revoked', async () => {
    const refused = Promise.withResolvers<void>()
    const on = { refused: ({ status }: TunnelEvents['refused']) => void (status === 401 && refused.resolve()) }
    await using tunnel = await connect(optionsFor({ connections: 1, token: await token({ ttl: '2m' }), on }))
    const id = randomUUID()
    const renewed = await createToken({ key: keys.privateJwk, runtime: 'demo', ttl: '1h', id })
    tunnel.setToken(renewed.token)
    await until(() => server.sessions()[0]!.tokenEndsAt >= renewed.expiresAt)
    await server.revoke({ tokenId: id })
    await refused.promise
    expect(tunnel.stats().tokenExpiresMs).toBe(renewed.expiresAt)
  })

  it('loses nothing while one instance takes over from another, again and again', async () => {
    let instance = 0
    const begin = () => {
      const mine = String(++instance)
      return connect(optionsFor({ target: async request => new Response(`${mine} ${await request.text()}`) }))
    }
    let current = await begin()
    let running = true
    const answers = new Map<number, number>()
    const callers = [0, 1, 2, 3].map(async caller => {
      while (running) {
        const init = caller % 2 === 0 ? {} : { method: 'POST', body: 'x' }
        const response = await server.fetch('demo', new Request(`https://demo.${DOMAIN}/`, init))
        await response.text()
        answers.set(response.status, (answers.get(response.status) ?? 0) + 1)
        await new Promise(setImmediate)
      }
    })
    for (let update = 0; update < 5; update++) {
      const next = await begin()
      await current.close({ graceMs: 10_000 })
      current = next
    }
    running = false
    await Promise.all(callers)
    await current.close({ graceMs: 1000 })
    expect([...answers.keys()]).toEqual([200])
    expect(answers.get(200)).toBeGreaterThan(20)
  })
})

it('one process serves two runtimes, and neither is affected by the other', async () => {
  const as = async (runtime: string) =>
    connect(optionsFor({ token: await token({ runtime }), target: () => new Response(runtime) }))
  await using first = await as('first')
  await using _second = await as('second')
  const ask = async (runtime: string) => await (await server.fetch(runtime, `https://${runtime}.${DOMAIN}/`)).text()
  expect(await Promise.all([ask('first'), ask('second')])).toEqual(['first', 'second'])
  await first.close({ graceMs: 0 })
  expect(await ask('second')).toBe('second')
})

describe('a token that is bound to a client certificate, when both are renewed', () => {
  const renewal = async () => {
    const { certificate, key } = await createClientCertificate(secrets.authority, { runtime: 'demo' })
    return { tls: { cert: certificate, key }, token: await token({ certificate }) }
  }

  const startBound = () =>
    createServer({
      public: { port: 0, tls: secrets.server },
      control: { port: 0, tls: secrets.server, clientCa: secrets.ca },
      domains: [DOMAIN],
      auth: { jwks: keys.jwks },
    })

  it('tries once, and then less and less often, until it has the certificate, however often it gets a token', async () => {
    await using bound = await startBound()
    const [begin, { certificate }] = [
      await renewal(),
      await createClientCertificate(secrets.authority, { runtime: 'demo' }),
    ]
    const warnings: string[] = []
    const warn = (_fields: object, message: string) => void warnings.push(message)
    let given = 0
    await using tunnel = await connect(
      optionsFor({
        ...begin,
        token: () => (given++ === 0 ? begin.token : token({ certificate })),
        url: `wss://127.0.0.1:${bound.controlAddress?.port}`,
        connections: 1,
        logger: { debug() {}, info() {}, warn, error() {} },
      }),
    )
    await tunnel.refreshToken()
    await until(() => warnings.length > 0)
    for (let times = 0; times < 3; times++) await tunnel.refreshToken()
    expect(tunnel.stats().connections).toMatchObject([{ attempts: 2 }])
  })

  it.each(['the certificate', 'the token', 'the token, which causes a dial,'])(
    'moves to a new session, and loses nothing: %s comes first',
    async first => {
      await using bound = await startBound()
      const begin = await renewal()
      const answer = Promise.withResolvers<Response>()
      const refusals: number[] = []
      const warnings: string[] = []
      const warn = (_fields: object, message: string) => void warnings.push(message)
      await using tunnel = await connect(
        optionsFor({
          ...begin,
          url: `wss://127.0.0.1:${bound.controlAddress?.port}`,
          connections: 1,
          target: () => answer.promise,
          logger: { debug() {}, info() {}, warn, error() {} },
          on: { refused: ({ status }) => void refusals.push(status) },
        }),
      )
      const [old] = bound.sessions()
      const open = bound.fetch('demo', `https://demo.${DOMAIN}/`)
      await until(() => tunnel.stats().exchanges.live === 1)
      const next = await renewal()
      if (first !== 'the certificate') tunnel.setToken(next.token)
      if (first === 'the token') await until(() => warnings.length > 0)
      else await new Promise(setImmediate)
      tunnel.setTrust({ ca: secrets.ca, tls: next.tls })
      if (first === 'the certificate') tunnel.setToken(next.token)
      await until(() => bound.sessions().length > 1)
      answer.resolve(new Response('whole'))
      expect(await (await open).text()).toBe('whole')
      await until(() => bound.sessions().every(({ id }) => id !== old?.id))
      expect(refusals).toEqual([])
      const late = 'the token is bound to another certificate, but no new session was opened: refused (401, '
      expect(warnings).toEqual(first === 'the token' ? [expect.stringContaining(late)] : [])
    },
  )
})
