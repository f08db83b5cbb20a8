/**
 * A target that is a `node:http` server which does not listen. It gets connections that exist only in memory, and speaks
 * HTTP/1.1 over them as over any other, including upgrades.
 */
import type { Server as HttpServer } from 'node:http'
import { type Duplex, duplexPair } from 'node:stream'
import { ByteCache } from '../../protocol/base/byte-cache.ts'
import { ignore, logDefect, logGuard } from '../../protocol/base/guard.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import type { HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import { removeHeader } from '../../protocol/http/headers.ts'
import { Http1ClientConnection, KEEP_ALIVE_MARGIN_MS } from '../../protocol/http/http1/client-connection.ts'
import type { Head } from '../../protocol/http/http1/head-parser.ts'
import { INNER_LIMITS } from '../../protocol/http/limits.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { OpenTarget } from './index.ts'
import { asSocket } from './memory-socket.ts'

/** The server has timeouts of its own, for reading a request and for answering it. */
const NO_DEADLINE = { headTimeoutMs: 0 }
const LIMITS = { ...INNER_LIMITS, stalledMs: 0 }

/** Most of what an application has written that is copied before its reader asks for more. */
const PIECE_BYTES = 64 * 1024

/** Most idle connections that are kept for later exchanges. */
const MAX_IDLE = 32

/**
 * The peer address that the server sees. The caller's address is in `X-Forwarded-For`, where frameworks that trust a proxy on
 * loopback look for it.
 */
const PEER_ADDRESS = '127.0.0.1'

/** A listener of the server that throws ends its connection. Rejections are up to the server, as with Node itself. */
export function nodeServerTarget(server: HttpServer, logger: Logger = noLogger): OpenTarget {
  const connections = new Connections(server, logger)
  return {
    handler: (request, response) => connections.forward(request, response),
    announcement: () => ({ cors: [] }),
    close: () => connections.close(),
  }
}

class Connections {
  readonly #server: HttpServer
  readonly #logger: Logger
  readonly #idle: Http1ClientConnection[] = []
  readonly #heads = new ByteCache<Head>()
  #closed = false

  constructor(server: HttpServer, logger: Logger) {
    this.#server = server
    this.#logger = logger
  }

  forward(request: HttpRequest, response: ResponseSink): RequestSink {
    const headers = [...request.headers]
    if (request.caller !== undefined) appendForwarded(headers, request.caller)
    const { method, authority, path, bodyBytes, upgrade } = request
    const outgoing = { method, authority, path, headers, bodyBytes, upgrade }
    return new AppExchange(response).pass((_, answered) => this.#take().send(outgoing, answered, NO_DEADLINE), request)
  }

  /** Closes idle connections. The others end with their exchange. */
  close(): void {
    this.#closed = true
    for (const connection of this.#idle.splice(0)) connection.destroy()
  }

  #take(): Http1ClientConnection {
    const now = performance.now()
    for (let connection = this.#idle.pop(); connection !== undefined; connection = this.#idle.pop()) {
      if (connection.fresh(now)) return connection
      connection.destroy()
    }
    const [ours, theirs] = duplexPair()
    asSocket(theirs, ours, PEER_ADDRESS, () => cut())
    const cut = endTogether(ours, theirs, this.#logger)
    endWhenThrown(theirs, cut, this.#logger)
    const connection = new Http1ClientConnection(ours, {
      limits: LIMITS,
      heads: this.#heads,
      onIdle: idle => this.#keep(idle),
      onClose: gone => this.#drop(gone),
    })
    this.#server.emit('connection', theirs)
    return connection
  }

  #keep(connection: Http1ClientConnection): void {
    const mayStay = !this.#closed && this.#idle.length < MAX_IDLE
    if (mayStay && connection.rest(this.#keptMs)) this.#idle.push(connection)
    else connection.destroy()
  }

  /** The server announces at most this time in `Keep-Alive`, and an application may remove that field. */
  get #keptMs(): number {
    return (this.#server.keepAliveTimeout || Number.POSITIVE_INFINITY) - KEEP_ALIVE_MARGIN_MS
  }

  #drop(connection: Http1ClientConnection): void {
    const index = this.#idle.indexOf(connection)
    if (index >= 0) this.#idle.splice(index, 1)
  }
}

/** What the application says in `sallyport-error` would look like ours. */
class AppExchange extends PassThrough {
  override responseInformational(status: number, headers: HeaderList): void {
    removeHeader(headers, 'sallyport-error')
    super.responseInformational(status, headers)
  }

  override responseHead(head: ResponseHead): void {
    removeHeader(head.headers, 'sallyport-error')
    super.responseHead(head)
  }
}

/**
 * Ends both when one of them is destroyed, as a kernel would, while Node's duplex pair differs from version to version. The other would
 * wait forever, and so would its last write. The returned function destroys `theirs` so that a response without a length is cut.
 */
function endTogether(ours: Duplex, theirs: Duplex, logger: Logger): () => void {
  endWrite(ours, logger)
  const { taken, isHanded } = endWrite(theirs, logger)
  const guard = logGuard(logger, 'a connection in memory could not be ended')
  let isCut = false
  theirs._destroy = (error, callback) => {
    isCut ||= !isHanded() || (error !== null && !isRefusal(theirs, error))
    callback(isCut ? error : null)
  }
  const oursClosed = guard(() => {
    // First, since the write that comes next would throw: nobody reads it.
    theirs.destroy()
    // As by a kernel. Otherwise the application would see a response after which the connection ends as one that broke off.
    taken()
  })
  const endOnceRead = guard(() => {
    if (ours.readableLength === 0) ours.destroy()
  })
  const ended = guard(() => ours.destroy())
  const theirsClosed = guard(() => {
    // What was sent before comes first: the server closes idle connections, however slowly an answer is read.
    if (isCut) {
      ours.prependListener('data', endOnceRead)
      endOnceRead()
    } else if (ours.readableEnded) ours.destroy()
    else {
      ours.once('end', ended)
      ours.push(null)
    }
  })
  ours.once('close', oursClosed)
  theirs.once('close', theirsClosed)
  return () => {
    isCut = true
    theirs.destroy()
  }
}

/** What Node's server keeps on a socket: the answer in progress, and the parser, until the application takes an upgraded connection over. */
interface Served extends Duplex {
  readonly _httpMessage?: { readonly headersSent: boolean } | null
  readonly parser?: object | null
}

/**
 * Node itself has answered what it cannot parse, or what takes too long, as it does unless the application has begun to answer. The
 * application may end its answer with an error of the same kind, from an upstream of its own.
 */
function isRefusal({ parser, _httpMessage }: Served, { code }: NodeJS.ErrnoException): boolean {
  const isOfNode = code?.startsWith('HPE_') === true || code === 'ERR_HTTP_REQUEST_TIMEOUT'
  return isOfNode && parser !== null && _httpMessage?.headersSent !== true
}

/**
 * A write is called back when the other end has read it, when this end is closed, or when `taken` is called. The other end gets a copy,
 * piece by piece: the application may use or transfer the memory of what it wrote and was called back for, and of what it reads.
 * `isHanded`: whether the other end has everything, read or not.
 */
function endWrite(end: Duplex, logger: Logger) {
  const { _write } = end
  let onEnd: (error?: Error | null) => void = ignore
  let handed = 0
  end._write = (chunk: Uint8Array, encoding, callback) => {
    let at = 0
    onEnd = error => {
      onEnd = ignore
      at = chunk.length
      handed = 0
      callback(error)
    }
    const next = (error?: Error | null) => {
      if (error || at === chunk.length) return onEnd(error)
      const piece = new Uint8Array(chunk.subarray(at, at + PIECE_BYTES))
      at += piece.length
      handed = at
      _write.call(end, piece, encoding, next)
    }
    next()
  }
  const guard = logGuard(logger, 'a write in memory could not be ended')
  const closed = guard(() => onEnd(new Error('closed')))
  end.once('close', closed)
  return { taken: () => onEnd(), isHanded: () => end.writableLength === handed }
}

/** The server's parser and listeners run inside the events of this end. Nothing else would catch their errors. */
function endWhenThrown(theirs: Duplex, cut: () => void, logger: Logger): void {
  const emit = theirs.emit
  theirs.emit = (...args: Parameters<Duplex['emit']>) => {
    try {
      return emit.apply(theirs, args)
    } catch (error) {
      logDefect(logger, 'a listener of the target threw', error)
      cut()
      return true
    }
  }
}
