import { Buffer } from 'node:buffer'
import type { EventEmitter } from 'node:events'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import type { Duplex } from 'node:stream'
import type { RawData, WebSocket } from 'ws'
import * as wsModule from 'ws'
import { errorOf } from '../base/errors.ts'
import { guardWith, ignore } from '../base/guard.ts'
import { ownBytes } from '../base/own-bytes.ts'
import { resetSocket } from '../base/reset-socket.ts'
import { SocketTurns } from '../base/socket-turns.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { HEADROOM_BYTES, MAX_MESSAGE_BYTES, type Transport, type TransportHandler } from './transport.ts'
import { type ReaderOwner, WebSocketReader } from './websocket-reader.ts'

/** Frames without payload (pings, pongs, empty messages): most in a burst, and per second. */
const EMPTY_BURST = 1000
const EMPTY_PER_SECOND = 100

/** The public, untyped `Sender` of `ws`: makes the head of a message and masks its payload in place. */
const { Sender } = wsModule as unknown as {
  Sender: { frame(data: Buffer, options: object): [head: Buffer, data: Buffer] }
}
const PLAIN_FRAME = { fin: true, opcode: 2, mask: false, readOnly: false, rsv1: false }
const MASKED_FRAME = { ...PLAIN_FRAME, mask: true }
/** Masking again with the same key unmasks. */
const KEY = Buffer.alloc(4)
const KEYED_FRAME = { ...MASKED_FRAME, maskBuffer: KEY, generateMask: () => {} }

const BINARY = { binary: true, compress: false, fin: true }
const TEXT = { binary: false, compress: false, fin: true }

/** An open `WebSocket` of the package `ws`. Users need not have the types of `ws`. */
export interface OpenWebSocket extends EventEmitter {
  readonly readyState: number
  close(code?: number, reason?: string): void
  terminate(): void
}

/**
 * Makes a {@link Transport} of a WebSocket, which must be open. Create it with `maxPayload` {@link MAX_MESSAGE_BYTES},
 * `maxFragments` 16 and `perMessageDeflate` off. Nothing throws: a broken socket is reported as `closed`.
 *
 * @example
 * ```ts
 * import { createSession, MAX_MESSAGE_BYTES, SUBPROTOCOL, webSocketTransport } from 'sallyport/protocol'
 * import { WebSocket } from 'ws'
 *
 * const ws = new WebSocket('wss://connect.example.com', [SUBPROTOCOL], {
 *   maxPayload: MAX_MESSAGE_BYTES,
 *   perMessageDeflate: false,
 * })
 * ws.once('open', () => createSession(webSocketTransport(ws), { role: 'client' }))
 * ```
 */
export function webSocketTransport(ws: OpenWebSocket): Transport {
  return new WebSocketTransport(ws as WebSocket)
}

interface WsReceiver {
  /** State of the parser: 0 between two frames. */
  readonly _state: number
  readonly _bufferedBytes: number
  /** Not 0 inside a message of several frames. */
  readonly _fragmented: number
  /** After an error it reads nothing more. */
  readonly _errored: boolean
}

/** Parts of a `WebSocket` that its types do not show. */
interface Inside {
  readonly _socket?: Duplex & { remoteAddress?: string }
  readonly _isServer?: boolean
  readonly _receiver?: WsReceiver
}

class WebSocketTransport implements Transport, ReaderOwner {
  readonly peer: string
  readonly peerMasks: boolean
  readonly copies: boolean
  handler: TransportHandler | undefined
  readonly #ws: WebSocket
  /** The socket of `ws`. It is corked, so that all messages of one turn leave in one system call. */
  readonly #socket: Inside['_socket']
  readonly #frame: object
  /** The listener with which `ws` read its socket, if this transport has replaced it. */
  #listener: ((bytes: Uint8Array) => void) | undefined
  #corked = false
  #empty: TokenBucket | undefined
  readonly #guard = guardWith(error => this.#threw(error))
  #error: Error | undefined

  constructor(ws: WebSocket) {
    this.#ws = ws
    const { _socket: socket, _isServer: isServer } = ws as unknown as Inside
    this.#socket = socket
    this.peerMasks = isServer === true
    this.#frame = this.peerMasks ? PLAIN_FRAME : MASKED_FRAME
    // Masking needs a buffer of our own, and TLS would join several pieces into a fresh one.
    this.copies = !this.peerMasks || (socket !== undefined && 'encrypted' in socket)
    this.peer = this.#socket?.remoteAddress ?? ''
    ws.binaryType = 'nodebuffer'
    const message = this.#guard((data: RawData, binary: boolean) => this.#message(data, binary))
    const failed = this.#guard((error: Error) => {
      this.#error = error
    })
    const closed = this.#guard((code: number, reason: Buffer) => this.#closed(code, reason.toString('utf8')))
    ws.on('message', message)
    this.#takeOver()
    ws.on('error', failed)
    ws.on('close', closed)
  }

  /** Reads the socket instead of `ws`, unless `ws` is in the middle of a message or others listen, too. */
  #takeOver(): void {
    const socket = this.#socket
    const receiver = this.#receiver
    const [listener, ...others] = (socket?.listeners('data') ?? []) as ((bytes: Uint8Array) => void)[]
    if (socket === undefined || receiver === undefined || listener === undefined || others.length > 0) return
    if (receiver._state !== 0 || receiver._bufferedBytes !== 0 || receiver._fragmented !== 0) return
    const reader = new WebSocketReader(this, MAX_MESSAGE_BYTES)
    this.#listener = listener
    const turns = new SocketTurns(socket)
    const push = this.#guard((bytes: Buffer) => {
      const since = performance.now()
      reader.push(bytes)
      turns.took(since)
    })
    socket.on('data', push)
    socket.off('data', listener)
  }

  get #receiver(): WsReceiver | undefined {
    return (this.#ws as unknown as Inside)._receiver
  }

  unmask(bytes: Buffer, mask: number): void {
    KEY.writeUInt32BE(mask)
    Sender.frame(bytes, KEYED_FRAME)
  }

  read(bytes: Buffer): void {
    this.handler?.bytes(bytes)
  }

  empty(): boolean {
    this.#empty ??= new TokenBucket(EMPTY_BURST, EMPTY_PER_SECOND)
    if (this.#empty.take()) return true
    this.#threw(new Error('too many frames without payload'))
    return false
  }

  passOn(bytes: Buffer): boolean {
    // `ws` keeps them until their message is complete.
    this.#listener?.call(this.#socket, ownBytes(bytes))
    return this.#receiver?._errored !== true
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    const { length } = chunk
    let offset = 0
    for (; length - offset > MAX_MESSAGE_BYTES; offset += MAX_MESSAGE_BYTES) {
      this.#send(chunk.subarray(offset, offset + MAX_MESSAGE_BYTES), undefined)
    }
    this.#send(offset === 0 ? chunk : chunk.subarray(offset), sent)
  }

  /** One contiguous write, masked in place. By itself, `ws` copies a masked message into a fresh buffer. */
  pooled(buffer: Buffer, end: number, sent: () => void): void {
    const socket = this.#socket
    if (this.#ws.readyState !== this.#ws.OPEN || socket === undefined) return
    this.#cork()
    const [head] = Sender.frame(buffer.subarray(HEADROOM_BYTES, end), this.#frame)
    const begin = HEADROOM_BYTES - head.length
    buffer.set(head, begin)
    socket.write(buffer.subarray(begin, end), error => {
      try {
        error ?? sent()
      } catch (thrown) {
        this.#threw(thrown)
      }
    })
  }

  control(text: string): void {
    if (this.#ws.readyState !== this.#ws.OPEN) return
    this.#cork()
    this.#ws.send(text, TEXT, ignore)
  }

  close(code: number, reason: string): void {
    this.#ws.close(code, shorten(reason))
  }

  terminate(): void {
    if (this.#socket !== undefined) resetSocket(this.#socket)
    this.#ws.terminate()
  }

  /** If the socket broke, `closed` is called instead of `sent`, because the kernel may still read the buffer. */
  #send(chunk: Uint8Array, sent: (() => void) | undefined): void {
    if (this.#ws.readyState !== this.#ws.OPEN) return
    this.#cork()
    this.#ws.send(chunk, BINARY, error => {
      try {
        error ?? sent?.()
      } catch (thrown) {
        this.#threw(thrown)
      }
    })
  }

  #cork(): void {
    if (this.#corked || this.#socket === undefined) return
    this.#corked = true
    this.#socket.cork()
    process.nextTick(this.#uncork)
  }

  readonly #uncork = this.#guard(() => {
    this.#corked = false
    this.#socket?.uncork()
  })

  /** An error in an event ends the connection. */
  #threw(error: unknown): void {
    this.#error ??= errorOf(error)
    this.terminate()
  }

  #message(data: RawData, binary: boolean): void {
    // With `nodebuffer` a message is always one Buffer.
    const bytes = data as Buffer
    if (binary) this.handler?.bytes(bytes)
    else this.handler?.control(bytes.toString('utf8'))
  }

  #closed(code: number, reason: string): void {
    const clean = this.#error === undefined && (code === 1000 || code === 1001)
    const error = this.#error ?? new Error(`WebSocket closed with ${code}${reason && `: ${reason}`}`)
    this.handler?.closed(code, reason, clean ? undefined : error)
  }
}

/** A close reason has at most 123 bytes of UTF-8. */
function shorten(reason: string): string {
  if (Buffer.byteLength(reason) <= 123) return reason
  return Buffer.from(reason)
    .subarray(0, 120)
    .toString('utf8')
    .replace(/\uFFFD+$/, '')
}
