/**
 * A TLS connection between two replicas, as a {@link Transport}. Each message has a four-byte head:
 *
 *     +----------+-----------------+---------
 *     | kind (8) | length (24)     | payload
 *     +----------+-----------------+---------
 *
 * The kinds are 0 for bytes of the yamux stream, 1 for a control message, and 2 for the end, with a code and a reason.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { TLSSocket } from 'node:tls'
import { errorOf } from '../../protocol/base/errors.ts'
import { type Failing, guardWith, stepOf } from '../../protocol/base/guard.ts'
import {
  HEADROOM_BYTES,
  MAX_MESSAGE_BYTES,
  type Transport,
  type TransportHandler,
} from '../../protocol/wire/transport.ts'
import { MAX_RUNTIME_STATE_BYTES } from '../directory/runtime-state.ts'

const HEAD_BYTES = 4
const KIND = { bytes: 0, control: 1, close: 2 } as const
/** Room for a state, with its quotes escaped, and the rest of the message. */
export const MAX_PEER_MESSAGE_BYTES = MAX_RUNTIME_STATE_BYTES + 16 * 1024
const CLOSE_MS = 2000

export class PeerTransport implements Transport, Failing {
  static readonly #late = stepOf<PeerTransport>(transport => transport.terminate())
  static readonly #uncorkDue = stepOf<PeerTransport>(transport => transport.#uncork())
  readonly peer: string
  handler: TransportHandler | undefined
  readonly #socket: TLSSocket
  #corked = false
  /** The incomplete head of a message. */
  #head: Buffer = Buffer.alloc(0)
  #kind = 0
  /** Bytes of the payload that are still to come. */
  #left = 0
  #parts: Uint8Array[] = []
  #ended: { code: number; reason: string } | undefined
  #error: Error | undefined
  #drain: PromiseWithResolvers<void> | undefined

  /** The TLS handshake of `socket` must be complete, and nothing read from it. */
  constructor(socket: TLSSocket) {
    this.#socket = socket
    this.peer = `${socket.remoteAddress}:${socket.remotePort}`
    const guard = guardWith(error => this.threw(error))
    const onData = guard((chunk: Buffer) => this.#read(chunk))
    const onError = guard((error: Error) => {
      this.#error ??= error
    })
    const onClose = guard(() => this.#closed())
    const onDrain = guard(() => this.#drained())
    socket.on('drain', onDrain)
    socket.on('data', onData)
    socket.on('error', onError)
    socket.on('close', onClose)
  }

  /** An error in an event handler ends the connection, and is reported to the session. */
  threw(error: unknown): void {
    this.#error ??= errorOf(error)
    this.terminate()
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    const { length } = chunk
    for (let at = 0; at < length; at += MAX_MESSAGE_BYTES) {
      const end = Math.min(at + MAX_MESSAGE_BYTES, length)
      this.#write(headOf(KIND.bytes, end - at))
      this.#write(at === 0 && end === length ? chunk : chunk.subarray(at, end), end === length ? sent : undefined)
    }
  }

  pooled(buffer: Buffer, end: number, sent: () => void): void {
    const begin = HEADROOM_BYTES - HEAD_BYTES
    buffer.writeUInt32BE((KIND.bytes << 24) + end - HEADROOM_BYTES, begin)
    this.#write(buffer.subarray(begin, end), sent)
  }

  control(text: string): void {
    this.#send(KIND.control, text)
  }

  close(code: number, reason: string): void {
    this.#send(KIND.close, `${code} ${reason}`)
    this.#socket.end()
    setTimeout(PeerTransport.#late, CLOSE_MS, this).unref()
  }

  terminate(): void {
    this.#socket.destroy()
  }

  /** Whether more waits to be sent than should. */
  get full(): boolean {
    return this.#socket.writableNeedDrain && !this.#socket.closed
  }

  /** Resolves in another turn of the event loop, once the socket takes more, or is closed. */
  async drained(): Promise<void> {
    if (this.full) this.#drain ??= Promise.withResolvers()
    await (this.#drain?.promise ?? nextTurn())
  }

  #drained(): void {
    this.#drain?.resolve()
    this.#drain = undefined
  }

  #send(kind: number, text: string): void {
    const payload = Buffer.from(text)
    this.#write(Buffer.concat([headOf(kind, payload.length), payload]))
  }

  /** Corks the socket, so that all messages of one turn of the event loop are one system call. */
  #write(bytes: Uint8Array, sent?: () => void): void {
    const socket = this.#socket
    if (!socket.writable) return
    if (!this.#corked) {
      this.#corked = true
      socket.cork()
      process.nextTick(PeerTransport.#uncorkDue, this)
    }
    if (sent === undefined) socket.write(bytes)
    else {
      socket.write(bytes, error => {
        try {
          error ?? sent()
        } catch (thrown) {
          this.threw(thrown)
        }
      })
    }
  }

  #uncork(): void {
    this.#corked = false
    this.#socket.uncork()
  }

  #read(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length && !this.#socket.destroyed) {
      if (this.#left === 0) {
        at = this.#readHead(chunk, at)
        continue
      }
      const end = Math.min(chunk.length, at + this.#left)
      const part = at === 0 && end === chunk.length ? chunk : chunk.subarray(at, end)
      this.#left -= end - at
      at = end
      if (this.#kind === KIND.bytes) this.handler?.bytes(part)
      else this.#text(part)
    }
  }

  #readHead(chunk: Buffer, at: number): number {
    const end = Math.min(chunk.length, at + HEAD_BYTES - this.#head.length)
    const head =
      this.#head.length === 0 ? chunk.subarray(at, end) : Buffer.concat([this.#head, chunk.subarray(at, end)])
    if (head.length < HEAD_BYTES) {
      this.#head = Buffer.from(head)
      return end
    }
    this.#head = Buffer.alloc(0)
    this.#kind = head[0]!
    this.#left = head.readUIntBE(1, 3)
    const most = this.#kind === KIND.bytes ? MAX_MESSAGE_BYTES : MAX_PEER_MESSAGE_BYTES
    if (this.#left === 0 || this.#left > most || this.#kind > KIND.close) {
      this.#socket.destroy(new Error('a replica sent a malformed message'))
    }
    return end
  }

  #text(part: Uint8Array): void {
    this.#parts.push(part)
    if (this.#left > 0) return
    const text = Buffer.concat(this.#parts).toString('utf8')
    this.#parts = []
    if (this.#kind === KIND.control) this.handler?.control(text)
    else {
      const space = text.indexOf(' ')
      this.#ended = { code: Number(text.slice(0, space)), reason: text.slice(space + 1) }
      this.#socket.end()
    }
  }

  #closed(): void {
    this.#drained()
    const { code, reason } = this.#ended ?? { code: 1006, reason: '' }
    const clean = this.#ended !== undefined && (code === 1000 || code === 1001)
    const error = this.#error ?? new Error(`the connection to the replica was closed (${code})`)
    this.handler?.closed(code, reason, clean ? undefined : error)
  }
}

function headOf(kind: number, length: number): Buffer {
  const head = Buffer.allocUnsafe(HEAD_BYTES)
  head.writeUInt32BE((kind << 24) + length)
  return head
}
