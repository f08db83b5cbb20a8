/**
 * Reads sockets into one buffer that all connections of a listener or a pool share. A fresh buffer for each read would cost more
 * than parsing a small request. Bodies get buffers of their own, which their receivers keep.
 *
 * `node:net` offers this as the option `onread`, but only for sockets that it dials. Sockets that it accepts have the same slots
 * without public access. Where the slots cannot be found (TLS, streams that are not sockets), Node reads as usual.
 */
import { Buffer } from 'node:buffer'
import { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import type { Failing } from '../../base/guard.ts'
import { SocketTurns } from '../../base/socket-turns.ts'

/** The most that libuv reads in one call. */
const READ_BYTES = 64 * 1024
/** After a full read, a read of at least this size belongs to a body. Its buffer, of which it is at least half, is handed over instead of copied. */
const BODY_BYTES = READ_BYTES / 2

/**
 * Receives what was read, at this time. Bytes that are `lent` change after the call, so whatever is kept must be copied. Returns whether
 * more of a body is to come.
 */
export type OnRead = (bytes: Buffer, lent: boolean, now: number) => boolean

interface Slots {
  readonly buffer: symbol
  readonly callback: symbol
  /** Asked for the next buffer after each read. */
  readonly next: symbol
}

interface Handle {
  useUserBuffer?(buffer: Uint8Array): void
}

export class SocketReader {
  #shared: Buffer | undefined
  #slots: Slots | undefined

  /** Everything that arrives from now on goes to `onRead`; if it throws, `owner` ends. The socket flows, and can be paused and resumed. */
  read(socket: Duplex, onRead: OnRead, owner: Failing): void {
    const handle = (socket as { _handle?: Handle })._handle
    const slots = this.#slotsOf(socket, handle)
    const turns = new SocketTurns(socket)
    if (slots === undefined || !(socket instanceof Socket)) {
      socket.on('data', bytes => {
        try {
          const since = performance.now()
          onRead(bytes, false, since)
          turns.took(since)
        } catch (error) {
          owner.threw(error)
        }
      })
      socket.resume()
      if (turns.canPause) pauseWith(socket, turns)
      return
    }
    this.#shared ??= Buffer.allocUnsafeSlow(READ_BYTES)
    const shared = this.#shared
    let next: Buffer | undefined
    const fields = socket as unknown as Record<symbol, unknown>
    fields[slots.buffer] = shared
    fields[slots.callback] = (length: number, buffer: Buffer) => {
      try {
        const since = performance.now()
        const isBody = buffer !== shared && length >= BODY_BYTES
        const goesOn = onRead(length === READ_BYTES ? buffer : buffer.subarray(0, length), !isBody, since)
        // A connection that reads no body, or nothing at all, gets no buffer of its own, which would only take up memory.
        if (goesOn && (isBody || length === READ_BYTES) && !socket.isPaused()) next = Buffer.allocUnsafeSlow(READ_BYTES)
        else if (buffer !== shared) next = shared
        turns.took(since)
      } catch (error) {
        owner.threw(error)
      }
    }
    fields[slots.next] = () => {
      const buffer = next
      next = undefined
      return buffer
    }
    // A stream asks for more a tick after each chunk, even if it was paused in the meantime. Such a socket would start to read.
    const more = socket.read.bind(socket)
    socket.read = size => {
      try {
        return socket.isPaused() ? null : more(size)
      } catch (error) {
        owner.threw(error)
        return null
      }
    }
    handle!.useUserBuffer!(shared)
    socket.resume()
  }

  #slotsOf(socket: Duplex, handle: Handle | undefined): Slots | undefined {
    if (!(socket instanceof Socket) || 'encrypted' in socket || typeof handle?.useUserBuffer !== 'function')
      return undefined
    if (socket.readableLength > 0) return undefined
    this.#slots ??= findSlots(socket)
    return this.#slots
  }
}

/**
 * The stream flows on, so that it never keeps anything. If it were paused, Node would go on reading until 64 KiB wait. Each TLS record of them
 * would wait in a buffer of its own, which takes a hundred times the byte that may be in it.
 */
function pauseWith(socket: Duplex, turns: SocketTurns): void {
  socket.pause = () => {
    turns.pause()
    return socket
  }
  socket.resume = () => {
    turns.resume()
    return socket
  }
  socket.isPaused = () => turns.isPaused
}

function findSlots(socket: Socket): Slots | undefined {
  const symbols = Object.getOwnPropertySymbols(socket)
  const named = (name: string) => symbols.find(symbol => symbol.description === name)
  const [buffer, callback, next] = [named('kBuffer'), named('kBufferCb'), named('kBufferGen')]
  return buffer && callback && next && { buffer, callback, next }
}
