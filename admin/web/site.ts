/** The page of the admin listener: its files, its login and its data. It is read-only. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { packageFolder } from '../../protocol/base/version.ts'
import { inspectedPage } from '../inspected.ts'
import { type AdminSource, type Page, TEXT, textPage } from '../page.ts'
import { Feed } from './feed.ts'
import { LOGIN_MS, type Logins } from './logins.ts'

const FILES: Readonly<Record<string, readonly [file: string, contentType: string]>> = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/ui/app.js': ['app.js', 'text/javascript; charset=utf-8'],
  '/ui/chart.js': ['chart.js', 'text/javascript; charset=utf-8'],
  '/ui/requests.js': ['requests.js', 'text/javascript; charset=utf-8'],
  '/ui/dom.js': ['dom.js', 'text/javascript; charset=utf-8'],
  '/ui/views.js': ['views.js', 'text/javascript; charset=utf-8'],
  '/ui/style.css': ['style.css', 'text/css; charset=utf-8'],
  '/ui/icon.svg': ['icon.svg', 'image/svg+xml'],
}

/** For the page and everything that it loads. Text cannot become markup or script, since no Trusted Types policy is allowed. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
}

const INSPECT = '/ui/inspect/'
const MAX_CODE_BYTES = 256
const FULL = textPage(503, 'eight pages are open already')
const REFUSED = textPage(401, 'this code is not valid (any more)')
const ELSEWHERE = textPage(403, 'requests from other sites are not allowed')

export class Site {
  readonly #logins: Logins
  readonly #feed: Feed
  readonly #source: AdminSource
  readonly #readToken: () => Promise<unknown>

  /** `readToken` reads the current admin token and passes it to `logins`. */
  constructor(source: AdminSource, logger: Logger, logins: Logins, readToken: () => Promise<unknown>) {
    this.#feed = new Feed(source, logger)
    this.#source = source
    this.#logins = logins
    this.#readToken = readToken
  }

  /** A code that opens the page once. It goes into the fragment of the page's URL. */
  code(): string {
    return this.#logins.issue()
  }

  /** The files and the login, which need only an allowed Host. */
  async open(path: string, request: IncomingMessage): Promise<Page | undefined> {
    if (!path.startsWith('/ui/') && path !== '/') return undefined
    if (isElsewhere(request)) return ELSEWHERE
    if (request.method === 'POST') return path === '/ui/login' ? await this.#login(request) : undefined
    return Object.hasOwn(FILES, path) ? await fileOf(path) : undefined
  }

  /** Whether the request has the cookie of a login. It is good only for {@link read}. */
  async isLoggedIn(request: IncomingMessage): Promise<boolean> {
    if (!this.#hasLogin(request)) return false
    await this.#readToken()
    return this.#hasLogin(request)
  }

  #hasLogin(request: IncomingMessage): boolean {
    const name = `${cookieName(request)}=`
    const cookies = request.headers.cookie?.split(/; */) ?? []
    return cookies.some(cookie => cookie.startsWith(name) && this.#logins.holds(cookie.slice(name.length)))
  }

  /** The pages that a login may read. */
  read(path: string): Page | undefined {
    const { inspector } = this.#source
    if (path.startsWith(INSPECT)) return inspector && inspectedPage(path.slice(INSPECT.length), inspector)
    if (path !== '/ui/events') return undefined
    if (!this.#feed.hasRoom()) return FULL
    const stream = (response: ServerResponse) => this.#feed.add(response)
    return { status: 200, contentType: 'text/event-stream', text: '', stream }
  }

  async #login(request: IncomingMessage): Promise<Page> {
    const code = await readText(request)
    await this.#readToken()
    const login = this.#logins.redeem(code)
    if (login === undefined) return REFUSED
    const cookie = `${cookieName(request)}=${login}; Path=/ui; HttpOnly; SameSite=Strict; Max-Age=${LOGIN_MS / 1000}`
    return { status: 204, contentType: TEXT, text: '', headers: { 'set-cookie': cookie } }
  }
}

/**
 * Browsers send the cookies of a host to all of its ports, so each port needs its own cookie name. That is the port in the browser's
 * address, since the ports of several machines may be forwarded to one.
 */
function cookieName({ headers, socket }: IncomingMessage): string {
  const port = /:(\d+)$/.exec(headers.host ?? '')?.[1] ?? socket.localPort
  return `sallyport-${port}`
}

/** Whether the request comes from another site. Browsers send these fields to every https address, and to their own machine. */
function isElsewhere({ headers }: IncomingMessage): boolean {
  const site = headers['sec-fetch-site']
  const isPage = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'
  return site !== undefined && site !== 'same-origin' && site !== 'none' && !isPage
}

async function readText(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    text += String(chunk)
    if (text.length > MAX_CODE_BYTES) return ''
  }
  return text
}

/** Files of the package, which are read once. */
const texts = new Map<string, Promise<string>>()

async function textOf(file: string): Promise<string> {
  const text = texts.get(file) ?? readPlain(join(packageFolder(), 'admin', 'web', 'public', file)).then(String)
  texts.set(file, text)
  try {
    return await text
  } catch (error) {
    texts.delete(file)
    throw error
  }
}

async function fileOf(path: string): Promise<Page> {
  const [file, contentType] = FILES[path]!
  const text = await textOf(file)
  return { status: 200, contentType, text, headers: HEADERS }
}
