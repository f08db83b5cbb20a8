/**
 * A connection that waits to be admitted. Its first bytes are read and kept, within a small bound. It is ready once its ClientHello
 * is complete, since half of one costs TLS as much memory as a whole one.
 */
import type { Socket } from 'node:net'
import { guardWith, logDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'
import { readServerName } from '../socket/client-hello.ts'
import type { Candidate } from './admission.ts'

/** Larger than any ClientHello, or any request without TLS. */
const MAX_BYTES = 16 * 1024

interface WaitingOptions {
  readonly address: string
  /** It is closed unless its ClientHello, or its first bytes if there is no TLS, arrive within this time. */
  readonly silentMs: number
  /** Called once they have arrived, after `listen`. */
  readonly onReady: (candidate: Candidate) => void
  /** Called when it is admitted. Its bytes have been put back. */
  readonly onAdmitted: () => void
  /** Called when it was closed because there was no room. */
  readonly onRefused: () => void
  /** Called when it was closed while it waited, by either end. */
  readonly onGone: (candidate: Candidate) => void
  readonly logger: Logger
}

export class WaitingSocket implements Candidate {
  readonly address: string
  readonly #socket: Socket
  readonly #options: WaitingOptions
  readonly #timer: NodeJS.Timeout
  #seen: Buffer | undefined
  #ready = false
  readonly #guard = guardWith(error => {
    this.#socket.destroy()
    logDefect(this.#options.logger, 'a connection failed while it waited', error)
  })

  constructor(socket: Socket, options: WaitingOptions) {
    this.address = options.address
    this.#socket = socket
    this.#options = options
    this.#timer = setTimeout(this.#onSilent, options.silentMs)
    socket.on('close', this.#onClose)
  }

  get idle(): boolean {
    return !this.#ready
  }

  /** Begins to watch what arrives. */
  listen(): void {
    this.#socket.on('readable', this.#onReadable)
    this.#socket.on('end', this.#onEnd)
  }

  readonly #onReadable = this.#guard(() => {
    const chunk: Buffer | null = this.#socket.read()
    if (chunk === null) return
    this.#seen = this.#seen === undefined ? chunk : Buffer.concat([this.#seen, chunk])
    if (this.#seen.length > MAX_BYTES) this.#socket.destroy()
    else if (!this.#ready && readServerName(this.#seen).done) {
      this.#ready = true
      clearTimeout(this.#timer)
      this.#options.onReady(this)
    }
  })

  readonly #onSilent = heardFirst(this.#guard(() => void (this.#ready || this.#socket.destroy())))

  readonly #onEnd = this.#guard(() => {
    this.#socket.destroy()
  })

  readonly #onClose = this.#guard(() => this.#leave())

  #leave(): void {
    this.#stop()
    this.#options.onGone(this)
  }

  #stop(): void {
    clearTimeout(this.#timer)
    this.#socket.off('readable', this.#onReadable)
    this.#socket.off('end', this.#onEnd)
    this.#socket.off('close', this.#onClose)
  }

  admit(): void {
    this.#stop()
    this.#socket.pause()
    if (this.#seen !== undefined && !this.#socket.destroyed) this.#socket.unshift(this.#seen)
    this.#seen = undefined
    this.#options.onAdmitted()
  }

  end(): void {
    this.#leave()
    this.#socket.destroy()
  }

  destroy(): void {
    this.end()
    this.#options.onRefused()
  }
}
