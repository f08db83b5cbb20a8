/** oauth2-proxy, set up as in docs/access.md: a browser logs in once, and the services behind learn who it is. */
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { needs, program } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { freePort, type ProxyProgram, startProxyProgram } from '../support/proxy-program.ts'
import { DOMAIN } from '../support/secrets.ts'

/** An OpenID provider that knows one person, and asks nothing. */
class Issuer {
  readonly url: string
  readonly #server: Server
  readonly #keys = generateKeyPairSync('rsa', { modulusLength: 2048 })
  readonly #nonces = new Map<string, string>()
  email = 'ada@example.com'

  static async start(): Promise<Issuer> {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    return new Issuer(server)
  }

  private constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on('request', async (request: IncomingMessage, response) => {
      const url = new URL(request.url!, this.url)
      if (url.pathname === '/authorize') {
        const back = new URL(url.searchParams.get('redirect_uri')!)
        const code = randomBytes(16).toString('hex')
        this.#nonces.set(code, url.searchParams.get('nonce') ?? '')
        back.searchParams.set('code', code)
        back.searchParams.set('state', url.searchParams.get('state')!)
        return response.writeHead(302, { location: back.href }).end()
      }
      let body = ''
      for await (const chunk of request) body += chunk
      const answer = await this.#answer(url.pathname, new URLSearchParams(body))
      response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' })
      return response.end(JSON.stringify(answer ?? {}))
    })
  }

  async #answer(path: string, form: URLSearchParams): Promise<object | undefined> {
    const { url } = this
    switch (path) {
      case '/.well-known/openid-configuration':
        return {
          ...{ issuer: url, authorization_endpoint: `${url}/authorize`, token_endpoint: `${url}/token` },
          ...{ jwks_uri: `${url}/jwks`, userinfo_endpoint: `${url}/userinfo` },
          id_token_signing_alg_values_supported: ['RS256'],
        }
      case '/jwks':
        return { keys: [{ ...(await exportJWK(this.#keys.publicKey)), kid: 'one', use: 'sig', alg: 'RS256' }] }
      case '/token': {
        const nonce = this.#nonces.get(form.get('code')!)
        const claims = { email: this.email, email_verified: true, groups: ['engineers'], nonce }
        const token = new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'one' }).setIssuedAt()
        const signed = token.setIssuer(url).setAudience('sallyport').setSubject('ada').setExpirationTime('1h')
        const idToken = await signed.sign(this.#keys.privateKey)
        return { access_token: 'opaque', token_type: 'Bearer', expires_in: 3600, id_token: idToken }
      }
      case '/userinfo':
        return { sub: 'ada', email: this.email, preferred_username: 'ada' }
      default:
        return undefined
    }
  }

  stop(): void {
    this.#server.close().closeAllConnections()
  }
}

interface Seen {
  readonly status: number
  readonly location: string | undefined
  readonly body: string
}

/** Keeps cookies, as far as this test needs, and finds every name on loopback. */
class Browser {
  readonly cookies = new Map<string, string>()
  readonly #ca: string

  constructor(ca: string) {
    this.#ca = ca
  }

  async get(address: string, headers: Record<string, string> = {}): Promise<Seen> {
    const url = new URL(address)
    if (url.protocol === 'http:') {
      const response = await fetch(url, { redirect: 'manual' })
      return { status: response.status, location: response.headers.get('location') ?? undefined, body: '' }
    }
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const { port, pathname, search, host, hostname } = url
    const request = requestHttps({
      ...{ host: '127.0.0.1', port, path: pathname + search, ca: this.#ca, servername: hostname, agent: false },
      headers: { host, accept: 'text/html', ...(cookie && { cookie }), ...headers },
    }).end()
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    for (const line of response.headers['set-cookie'] ?? []) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)!
      if (value === '') this.cookies.delete(name!)
      else this.cookies.set(name!, value!)
      expect(line).toMatch(/; HttpOnly; Secure/)
    }
    let body = ''
    for await (const chunk of response) body += chunk
    return { status: response.statusCode!, location: response.headers.location, body }
  }

  /** Follows redirects; reports which hosts it passed. */
  async visit(address: string): Promise<Seen & { readonly hosts: string[] }> {
    const hosts: string[] = []
    for (let url = address; hosts.length < 10; ) {
      hosts.push(new URL(url).hostname)
      const seen = await this.get(url)
      if (seen.location === undefined) return { ...seen, hosts }
      url = new URL(seen.location, url).href
    }
    throw new Error(`redirected without an end: ${hosts.join(' ')}`)
  }
}

describe.runIf(needs('oauth2-proxy'))('oauth2-proxy', () => {
  let folder: string
  let issuer: Issuer
  let proxy: ProxyProgram
  let pair: Pair
  let demo: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-oauth2-proxy-'))
    issuer = await Issuer.start()
    const port = await freePort()
    pair = await startPair({
      target: request => Response.json({ url: request.url, headers: Object.fromEntries(request.headers) }),
      server: {
        access: {
          open: ['login/', 'demo/webhooks'],
          forwardAuth: {
            url: `http://127.0.0.1:${port}/`,
            headers: ['x-auth-request-user', 'x-auth-request-email', 'x-auth-request-groups'],
          },
        },
      },
    })
    await pair.connect('login', `http://127.0.0.1:${port}`)
    demo = `https://${pair.place.authority}`
    writeFileSync(join(folder, 'secret'), 'not a secret', { mode: 0o600 })
    writeFileSync(join(folder, 'cookie'), randomBytes(16).toString('hex'), { mode: 0o600 })
    proxy = await startProxyProgram(program('oauth2-proxy'), flags(port), port)
  })

  afterAll(async () => {
    await proxy?.stop()
    await pair?.stop()
    issuer?.stop()
    await rm(folder, { recursive: true })
  })

  /** The document's, at other places. */
  function flags(port: number): string[] {
    const [, block] = /^oauth2-proxy (.*?)```/ms.exec(readFileSync('docs/access.md', 'utf8'))!
    const at = pair.place.port
    return block!
      .replaceAll(/\\\n/g, '')
      .replaceAll('tunnels.example.com', DOMAIN)
      .replace('127.0.0.1:4180', `127.0.0.1:${port}`)
      .replace('https://id.example.com', issuer.url)
      .replace(`--whitelist-domain .${DOMAIN}`, `--whitelist-domain .${DOMAIN}:${at}`)
      .replace(`login.${DOMAIN}/`, `login.${DOMAIN}:${at}/`)
      .replace('--client-secret-file secret', `--client-secret-file ${join(folder, 'secret')}`)
      .replace('--cookie-secret-file cookie', `--cookie-secret-file ${join(folder, 'cookie')}`)
      .split(/\s+/)
      .filter(Boolean)
  }

  test('a browser is sent to log in, returns to where it was, and the service knows who it is', async () => {
    const browser = new Browser(pair.secrets.ca)
    const { status, body, hosts } = await browser.visit(`${demo}/page?a=1&b=%2F`)
    expect(hosts).toEqual([`demo.${DOMAIN}`, '127.0.0.1', `login.${DOMAIN}`, `demo.${DOMAIN}`])
    expect(status).toBe(200)
    const { url, headers } = JSON.parse(body)
    expect(new URL(url).search).toBe('?a=1&b=%2F')
    expect(headers).toMatchObject({
      'x-auth-request-user': 'ada',
      'x-auth-request-email': 'ada@example.com',
      'x-auth-request-groups': 'engineers',
    })
    // What the caller makes up does not count, and it does not log in again.
    const forged = await browser.get(`${demo}/`, { 'x-auth-request-user': 'root', 'x-auth-request-email': 'r@x' })
    expect(JSON.parse(forged.body).headers).toMatchObject({ 'x-auth-request-user': 'ada' })
  })

  test('without a cookie, or with a made-up one, it does not get through', async () => {
    const browser = new Browser(pair.secrets.ca)
    expect(await browser.get(`${demo}/`)).toMatchObject({ status: 302, location: expect.stringContaining(issuer.url) })
    browser.cookies.set('_oauth2_proxy', 'made up')
    expect((await browser.get(`${demo}/`)).status).toBe(302)
    expect((await browser.get(`${demo}/webhooks/x`)).status).toBe(200)
  })

  test('somebody of another domain is refused by the login', async () => {
    issuer.email = 'eve@elsewhere.com'
    const browser = new Browser(pair.secrets.ca)
    const { status, hosts } = await browser.visit(`${demo}/`)
    expect([status, hosts.at(-1)]).toEqual([403, `login.${DOMAIN}`])
  })

  test('while it is down, nobody is let in', async () => {
    await proxy.stop()
    expect((await new Browser(pair.secrets.ca).get(`${demo}/`)).status).toBe(503)
  })
})
