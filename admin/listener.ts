import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { canonicalAddress } from '../protocol/base/address.ts'
import { ConnectionSlots, type SlotHolder } from '../protocol/base/connection-slots.ts'
import { detached, endFor, logGuard, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { withoutQuery } from '../protocol/base/path.ts'
import { reserveAddress } from '../protocol/base/reserved-addresses.ts'
import { KEEP_ALIVE } from '../protocol/base/tcp.ts'
import { ignoreRest } from '../protocol/http/http1/ignore-rest.ts'
import { type BoundAddress, type ListenAddress, listenOn } from '../protocol/http/listen-on.ts'
import { bearsToken, isHostAllowed } from './access.ts'
import { runAction } from './actions.ts'
import {
  type AdminSource,
  jsonPage,
  NOT_FOUND,
  type Page,
  protectedPage,
  publicPage,
  STARTING,
  textPage,
} from './page.ts'
import { Logins } from './web/logins.ts'
import { Site } from './web/site.ts'

export interface AdminListenerSettings extends ListenAddress {
  readonly source: AdminSource
  readonly logger?: Logger
}

export interface AdminOptions extends AdminListenerSettings {
  /**
   * The current token. Called for each request that needs it, so that a changed file takes effect at once. Concurrent requests share
   * one call.
   */
  token(): string | Promise<string>
  /** Gets the audit line of each action. */
  logger: Logger
}

export interface AdminListener {
  readonly address: BoundAddress
  close(): Promise<void>
}

/**
 * The admin listener. Probes, metrics and the files of the page need an allowed Host. What the page shows needs the cookie of a login,
 * or the bearer token. Everything else needs the token.
 */
export async function listenAdmin(options: AdminOptions): Promise<AdminListener & { code(): string }> {
  const { source } = options
  const logger = safeLogger(options.logger)
  const logins = new Logins()
  const currentToken = oneAtATime(async () => logins.under(await readToken(options, logger)))
  const site = new Site(source, logger, logins, currentToken)
  const listener = await open(options, async (request, path, authorized) => {
    const { authorization, accept } = request.headers
    const page = isRead(request) ? () => publicPage(path, source, accept) : async () => undefined
    const hostAllowed = isHostAllowed(request.headers.host)
    // A request that needs no token must not wait for the token file.
    const open = hostAllowed ? ((await page()) ?? (await site.open(path, request))) : undefined
    if (open) return open
    if (hostAllowed && isRead(request) && (await site.isLoggedIn(request))) {
      const shown = site.read(path)
      if (shown) return shown
    }
    const hasToken = authorization !== undefined && bearsToken(authorization, await currentToken())
    if (!hasToken) return hostAllowed ? NEEDS_TOKEN : WRONG_HOST
    authorized()
    if (request.method === 'POST' && path === '/ui/codes') return jsonPage({ code: site.code() })
    const isStarting = source.isStarting?.() === true
    if (request.method === 'POST' && isStarting) return STARTING
    if (request.method === 'POST') return runAction(path, request, source.actions ?? {}, options.logger)
    if (!isRead(request)) return NOT_FOUND
    const [, query = ''] = (request.url ?? '').split('?', 2)
    return (
      (await page()) ??
      site.read(path) ??
      (await protectedPage(path, source, new URLSearchParams(query), accept)) ??
      (isStarting ? STARTING : NOT_FOUND)
    )
  })
  return { ...listener, code: () => site.code() }
}

/** The health listener: GET and HEAD of `/livez`, `/readyz` and `/metrics`, for everybody, and nothing else. */
export function listenHealth(options: AdminListenerSettings): Promise<AdminListener> {
  return open(options, async (request, path) =>
    isRead(request) ? ((await publicPage(path, options.source, request.headers.accept)) ?? NOT_FOUND) : WRONG_METHOD,
  )
}

const WRONG_HOST = textPage(403, 'this Host needs the admin token')
const NEEDS_TOKEN = textPage(401, 'this needs the admin token')
const WRONG_METHOD = textPage(405, 'GET and HEAD only')
const FAILED = textPage(500, 'failed')

/** If the token cannot be read, nobody gets in. */
async function readToken(options: AdminOptions, logger: Logger): Promise<string> {
  try {
    return await options.token()
  } catch (error) {
    logger.warn({ err: error }, 'the admin token cannot be used; nobody gets in')
    return ''
  }
}

/** Calls during a read share the next read, so a flood of requests causes at most two reads at a time. */
function oneAtATime<T>(read: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  let next: Promise<T> | undefined
  const begin = () => {
    next = undefined
    return read()
  }
  return () => {
    if (next === undefined) {
      next = last.then(begin)
      last = next
    }
    return next
  }
}

function isRead(request: IncomingMessage): boolean {
  return request.method === 'GET' || request.method === 'HEAD'
}

/** Calls `authorized` once the caller has shown the token. */
type Answer = (request: IncomingMessage, path: string, authorized: () => void) => Promise<Page>

/** Most connections of one listener. */
const MAX_CONNECTIONS = 64

/**
 * A connection. It counts as idle unless its caller has authenticated and is being answered. So strangers lose their connections first,
 * whether they are slow to send, slow to read, or waiting for metrics.
 */
class Visitor implements SlotHolder {
  readonly address: string
  readonly #socket: Socket
  idle = true
  /** An answer is still being sent. */
  owed = false

  constructor(socket: Socket) {
    this.address = canonicalAddress(socket.remoteAddress ?? '')
    this.#socket = socket
  }

  destroy(): void {
    this.#socket.destroy()
  }
}

async function open(options: AdminListenerSettings, answer: Answer): Promise<AdminListener> {
  const server = createServer({
    ...KEEP_ALIVE,
    maxHeaderSize: 16_384,
    headersTimeout: 10_000,
    requestTimeout: 20_000,
  })
  const places = new ConnectionSlots(MAX_CONNECTIONS)
  const visitors = new WeakMap<Socket, Visitor>()
  server.keepAliveTimeout = 30_000
  const logger = safeLogger(options.logger)
  const guard = logGuard(logger, 'a connection to the admin listener failed')
  const connected = guard((socket: Socket) => {
    const visitor = new Visitor(socket)
    if (!places.makeRoom(visitor.address)) {
      socket.destroy()
      return
    }
    places.add(visitor)
    visitors.set(socket, visitor)
    const left = guard(() => places.delete(visitor))
    socket.once('close', left)
  })
  const serve = async (visitor: Visitor, request: IncomingMessage, response: ServerResponse) => {
    const path = withoutQuery(request.url ?? '/')
    try {
      const page = await answer(request, path, () => {
        visitor.idle = false
      }).catch(() => FAILED)
      // If its caller has left meanwhile, nothing would end a stream.
      if (response.destroyed) return
      // A stream is an answer until it closes. It needs a login.
      if (page.stream !== undefined) visitor.idle = false
      request.resume()
      send(response, request, page)
    } catch (error) {
      // This ends the connection.
      endFor(error, logger, 'sending a page failed', () => request.socket.destroy())
    }
  }
  const requested = guard((request: IncomingMessage, response: ServerResponse) => {
    const visitor = visitors.get(request.socket)!
    // Pipelining is not allowed here. Thousands of requests in one packet would mean as many answers at once.
    if (visitor.owed) {
      ignoreRest(request.socket)
      visitor.destroy()
      return
    }
    visitor.owed = true
    const answered = guard(() => {
      visitor.idle = true
      visitor.owed = false
    })
    response.once('close', answered)
    detached(logger, 'sending a page failed', serve(visitor, request, response))
  })
  server.on('connection', connected)
  server.on('request', requested)
  // Node would answer unknown expectations by itself, any number at once.
  server.on('checkExpectation', requested)
  const address = await listenOn(server, options, logger)
  const release = reserveAddress(address)
  return {
    address,
    close: async () => {
      await close(server)
      release()
    },
  }
}

function send(response: ServerResponse, request: IncomingMessage, page: Page): void {
  const { stream } = page
  response.writeHead(page.status, {
    'content-type': page.contentType,
    ...(stream === undefined && page.status !== 204 ? { 'content-length': Buffer.byteLength(page.text) } : {}),
    'cache-control': 'no-store',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    'x-content-type-options': 'nosniff',
    ...(page.status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    ...(page.status === 405 ? { allow: 'GET, HEAD' } : {}),
    ...page.headers,
  })
  if (stream !== undefined && request.method !== 'HEAD') stream(response)
  else response.end(request.method === 'HEAD' ? undefined : page.text)
}

async function close(server: Server): Promise<void> {
  const closed = new Promise(resolve => server.close(resolve))
  server.closeAllConnections()
  await closed
}
