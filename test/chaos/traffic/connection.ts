/**
 * A caller's connection: HTTP/1.1 with keep-alive on a bare socket, so that the fate of each request is known exactly. Nothing is
 * sent again.
 */
import { once } from 'node:events'
import { connect as connectNet, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Place } from '../../support/caller.ts'
import { ResponseReader } from './response-reader.ts'

export interface Ask {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: Buffer
  /** The body of an answer with status 200, as it arrives. */
  onData(chunk: Buffer): void
}

export type Result =
  | { readonly kind: 'answered'; readonly status: number; readonly code: string }
  /** No byte of an answer arrived. */
  | { readonly kind: 'unanswered'; readonly reason: string }
  /** The answer was cut off. */
  | { readonly kind: 'cut'; readonly reason: string }

/** There was no connection, so nothing was sent. */
export class NotTaken extends Error {
  override readonly name = 'NotTaken'
}

/** Longer than a kept socket waits for a server that starts on a busy machine. */
export const DIAL_MS = 60_000

/** A socket that is being connected. With a `ca`, nothing is sent before `secureConnect`. */
export function socketTo({ port, ca, authority }: Place): Socket {
  return ca === undefined ? connectNet(port) : connectTls({ port, ca, servername: authority.split(':')[0] ?? '' })
}

export class CallerConnection {
  readonly #socket: Socket
  readonly #authority: string
  #reader: ResponseReader | undefined
  #finish: ((result: Result) => void) | undefined
  #isOpen = true

  private constructor(socket: Socket, authority: string) {
    this.#socket = socket
    this.#authority = authority
    socket.on('data', (chunk: Buffer) => this.#data(chunk))
    socket.on('end', () => this.#closed('closed'))
    socket.on('close', () => this.#closed('closed'))
    socket.on('error', error => this.#closed((error as NodeJS.ErrnoException).code ?? error.message))
  }

  /** Throws {@link NotTaken} if nobody listens or the handshake does not finish. */
  static async dial(place: Place): Promise<CallerConnection> {
    const { ca, authority } = place
    const socket = socketTo(place)
    const late = setTimeout(() => socket.destroy(new Error('no handshake in time')), DIAL_MS)
    try {
      await once(socket, ca === undefined ? 'connect' : 'secureConnect')
    } catch (error) {
      throw new NotTaken((error as NodeJS.ErrnoException).code ?? (error as Error).message)
    } finally {
      clearTimeout(late)
    }
    socket.setNoDelay()
    return new CallerConnection(socket, authority)
  }

  /** Whether it can carry another request. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  close(): void {
    this.#isOpen = false
    this.#socket.destroy()
  }

  ask(ask: Ask, deadlineMs: number): Promise<Result> {
    const { promise, resolve } = Promise.withResolvers<Result>()
    const reader = new ResponseReader(ask.onData)
    const late = setTimeout(() => this.#broken(`nothing for ${deadlineMs / 1000} s`), deadlineMs)
    this.#reader = reader
    this.#finish = result => {
      clearTimeout(late)
      this.#finish = undefined
      this.#reader = undefined
      resolve(result)
    }
    const length = ask.body === undefined ? '' : `content-length: ${ask.body.length}\r\n`
    this.#socket.write(`${ask.method} ${ask.path} HTTP/1.1\r\nhost: ${this.#authority}\r\n${length}\r\n`)
    if (ask.body !== undefined) this.#socket.write(ask.body)
    return promise
  }

  #data(chunk: Buffer): void {
    const reader = this.#reader
    try {
      if (reader === undefined) throw new Error('bytes that nobody asked for')
      reader.push(chunk)
    } catch (error) {
      this.#broken((error as Error).message)
      return
    }
    if (!reader.isWhole) return
    if (reader.isLast) this.close()
    this.#finish?.({ kind: 'answered', status: reader.status, code: reader.code })
  }

  #closed(how: string): void {
    this.#isOpen = false
    this.#broken(how)
    this.#socket.destroy()
  }

  #broken(reason: string): void {
    this.close()
    const hasBegun = this.#reader?.hasBegun === true
    this.#finish?.({ kind: hasBegun ? 'cut' : 'unanswered', reason })
  }
}
