/** The page of the admin listener: its files, its login and what it shows. It reads, and does nothing. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { packageFolder } from '../../protocol/base/version.ts'
import { inspectedPage } from '../inspected.ts'
import { type AdminSource, type Page, TEXT } from '../page.ts'
import { Feed } from './feed.ts'
import type { Logins } from './logins.ts'

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

/** Of the page and all that it loads. Text from elsewhere cannot become markup or script: there is no policy that would make it so. */
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
const FULL: Page = { status: 503, contentType: TEXT, text: 'eight pages are open already\n' }
const REFUSED: Page = { status: 401, contentType: TEXT, text: 'this code is not in force\n' }
const ELSEWHERE: Page = { status: 403, contentType: TEXT, text: 'not from another site\n' }
const DONE: Page = { status: 204, contentType: TEXT, text: '' }

export class Site {
  readonly #logins: Logins
  readonly #feed: Feed
  readonly #source: AdminSource
  readonly #readToken: () => Promise<unknown>

  /** `readToken` tells `logins` of the admin token that is in force. */
  constructor(source: AdminSource, logger: Logger, logins: Logins, readToken: () => Promise<unknown>) {
    this.#feed = new Feed(source, logger)
    this.#source = source
    this.#logins = logins
    this.#readToken = readToken
  }

  /** A code that opens the page once, for the fragment of its URL. */
  code(): string {
    return this.#logins.issue()
  }

  /** What anybody with an allowed Host may have: the files, and the login. */
  async open(path: string, request: IncomingMessage): Promise<Page | undefined> {
    if (!path.startsWith('/ui/') && path !== '/') return undefined
    if (isElsewhere(request)) return ELSEWHERE
    if (request.method === 'POST') return path === '/ui/login' ? await this.#login(request) : undefined
    return Object.hasOwn(FILES, path) ? await fileOf(path) : undefined
  }

  /** Whether the request has the cookie of a login. A cookie opens nothing but this page: {@link read}. */
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

  /** What a login may have. */
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
    const cookie = `${cookieName(request)}=${login}; Path=/ui; HttpOnly; SameSite=Strict; Max-Age=43200`
    return { ...DONE, headers: { 'set-cookie': cookie } }
  }
}

/** Browsers send the cookies of a name to all of its ports, so that each listener needs a name of its own. */
function cookieName({ socket }: IncomingMessage): string {
  return `sallyport-${socket.localPort}`
}

/** Browsers send these fields to every address that is https, or on their own machine. */
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

/** Read once, whoever asks for them: they are the package's own. */
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
