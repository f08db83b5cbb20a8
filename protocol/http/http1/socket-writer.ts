/**
 * Writes to a socket. Everything that is written in one turn goes out in one call, with small pieces copied together. While the kernel
 * accepts nothing, the small writes of a turn are joined with earlier ones. The owner of a body learns when the kernel has its bytes.
 */
import { Buffer } from 'node:buffer'
import { Socket } from 'node:net'
import process from 'node:process'
import type { Duplex } from 'node:stream'
import { Gathered, GatheredChunks, SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { type Failing, stepOf } from '../../base/guard.ts'

export interface BodyOwner {
  /** This many bytes of a body no longer wait here: the kernel has them, or they were lost with the socket. */
  sent(bytes: number): void
}

/** Up to this size, copying into one buffer is cheaper than a vectored write. */
const COPY_BYTES = 16 * 1024
/** Beyond this size, waiting for more gains nothing. */
const TURN_BYTES = 128 * 1024
/** Pieces this small are likely to be followed by more in this turn. Written one by one, each would cost a call. */
const BULK_BYTES = 8 * 1024

/** With more pieces in a write, their number may cost far more than their bytes: chunks of one byte are three pieces each. */
const MANY_PIECES = 64

/** What the writer reports to its connection. An error that is thrown outside of the connection's own calls ends the connection. */
export interface WriterOwner extends Failing {
  /** The kernel did not accept everything, so something waits from now on. */
  writeWaits(): void
  /** The kernel has accepted a complete write. */
  wrote(): void
}

export class SocketWriter implements Failing {
  /** Bytes that the kernel has not taken yet. */
  waiting = 0
  /** All bytes that were written, whether or not they have left. */
  writtenBytes = 0
  readonly #socket: Duplex
  readonly #connection: WriterOwner
  /** Plain sockets report at once what the kernel accepted, and keep none of it. TLS sockets do neither, and other streams may not. */
  readonly #tellsAtOnce: boolean
  /** What was written in earlier turns behind something that waits. It comes before `#pieces`. */
  #gathered: Gathered | undefined
  #pieces: (string | Uint8Array)[] = []
  /** The content of a chunk that is not complete yet. It comes after `#pieces`. */
  #chunk: Gathered | undefined
  /** Bytes in all three. */
  #bytes = 0
  #scheduled = false
  #ending = false
  #owner: BodyOwner | undefined
  #owed = 0
  /** For each waiting write: its size, whom to notify, and for how many bytes. */
  readonly #sizes: number[] = []
  readonly #owners: (BodyOwner | undefined)[] = []
  readonly #debts: number[] = []

  constructor(socket: Duplex, connection: WriterOwner) {
    this.#socket = socket
    this.#connection = connection
    this.#tellsAtOnce = socket instanceof Socket && !('encrypted' in socket)
  }

  /** Bytes that have not left for the kernel. */
  get held(): number {
    return this.waiting + this.#bytes
  }

  /** Text is latin1: heads and framing. */
  text(text: string): void {
    this.#add(text)
  }

  body(piece: Uint8Array, owner: BodyOwner): void {
    this.#owe(piece.length, owner)
    this.#add(piece)
  }

  /** A piece of a body in chunks. Small pieces share a chunk if they have to wait or are many, since framing may be longer than they are. */
  chunk(piece: Uint8Array, owner: BodyOwner): void {
    const mayShare = this.waiting > 0 || this.#pieces.length >= MANY_PIECES
    if (piece.length < SMALL_PIECE_BYTES && mayShare) {
      this.#owe(piece.length, owner)
      this.#addToChunk(piece)
    } else {
      this.text(`${piece.length.toString(16)}\r\n`)
      this.body(piece, owner)
      this.text('\r\n')
    }
  }

  #owe(bytes: number, owner: BodyOwner): void {
    if (this.#owner !== owner) {
      if (this.#owed > 0) this.flush()
      this.#owner = owner
    }
    this.#owed += bytes
  }

  #add(piece: string | Uint8Array): void {
    if (this.#ending) return
    if (this.#chunk !== undefined) this.#closeChunk()
    this.#pieces.push(piece)
    this.#added(piece.length)
  }

  #addToChunk(piece: Uint8Array): void {
    if (this.#ending) return
    if (this.#chunk?.add(piece) !== true) {
      this.#closeChunk()
      this.#chunk = new Gathered(piece, this.held)
    }
    this.#added(piece.length)
  }

  #closeChunk(): void {
    const chunk = this.#chunk
    if (chunk === undefined) return
    this.#chunk = undefined
    const size = `${chunk.length.toString(16)}\r\n`
    this.#pieces.push(size, chunk.bytes, '\r\n')
    this.#bytes += size.length + 2
    this.writtenBytes += size.length + 2
  }

  #added(bytes: number): void {
    this.#bytes += bytes
    this.writtenBytes += bytes
    // A handler may give more for each piece that is lost with the socket. In this call or in ticks, that would keep its close from being heard.
    if (this.#bytes >= TURN_BYTES && !this.#socket.destroyed) {
      this.flush()
      return
    }
    if (this.#scheduled) return
    this.#scheduled = true
    if (bytes >= BULK_BYTES || this.#socket.destroyed) setImmediate(flushDue, this)
    else flushSoon(this)
  }

  /** @internal */
  flushDue(): void {
    this.#scheduled = false
    if (this.waiting === 0 || !this.#gather()) this.#flush(this.#tellsAtOnce)
  }

  /** A pending write costs some hundred bytes, so small pieces are held back until what is before them has left. */
  #gather(): boolean {
    const pieces = this.#pieces
    const bytes = this.#bytes - (this.#gathered?.length ?? 0) - (this.#chunk?.length ?? 0)
    if (bytes === 0) return true
    if (bytes >= SMALL_PIECE_BYTES) return false
    const turn = pieces.length === 1 ? pieces[0]! : join(pieces, roomToJoin()).subarray(0, bytes)
    if (this.#gathered === undefined) this.#gathered = new Gathered(turn, this.waiting)
    else if (!this.#gathered.add(turn)) return false
    this.#pieces = []
    return true
  }

  flush(): void {
    this.#flush(false)
  }

  /** `mayTell`: the code that wrote has returned, so owners can be notified before this call returns. */
  #flush(mayTell: boolean): void {
    if (this.#bytes === 0) return
    this.#closeChunk()
    const pieces = this.#pieces
    const bytes = this.#bytes
    if (this.#gathered !== undefined) {
      pieces.unshift(this.#gathered.bytes)
      this.#gathered = undefined
    }
    this.#pieces = []
    this.#bytes = 0
    const owner = this.#owner
    const owed = this.#owed
    this.#owner = undefined
    this.#owed = 0
    if (this.#socket.destroyed || this.#socket.writableEnded) {
      owner?.sent(owed)
      return
    }
    const atOnce = mayTell && this.waiting === 0
    if (atOnce) this.#writeAtOnce(pieces, bytes)
    else this.#write(pieces, bytes, this.#onWritten)
    if (atOnce && this.#socket.writableLength === 0) {
      owner?.sent(owed)
      this.#connection.wrote()
      return
    }
    this.#sizes.push(bytes)
    this.#owners.push(owner)
    this.#debts.push(owed)
    if (this.waiting === 0) this.#connection.writeWaits()
    this.waiting += bytes
    // An empty write: its callback says that everything before it has left.
    if (atOnce) this.#socket.write('', this.#onWritten)
  }

  /** What the kernel accepts at once needs no buffer of its own. */
  #writeAtOnce(pieces: (string | Uint8Array)[], bytes: number): void {
    if (pieces.length === 1 || bytes > COPY_BYTES) {
      this.#write(pieces, bytes, undefined)
      return
    }
    this.#socket.write(join(pieces, roomToJoin()).subarray(0, bytes))
    if (this.#socket.writableLength > 0) scratch = undefined
  }

  /**
   * What is written behind something that waits will wait too, and of many pieces most do. So small ones are gathered, and none keeps
   * more memory than its own.
   */
  #write(pieces: (string | Uint8Array)[], bytes: number, callback: (() => void) | undefined): void {
    const waits = this.waiting > 0
    if (pieces.length > 1 && bytes <= COPY_BYTES) {
      this.#socket.write(join(pieces, waits ? Buffer.allocUnsafeSlow(bytes) : Buffer.allocUnsafe(bytes)), callback)
      return
    }
    if (waits || pieces.length > MANY_PIECES) pieces = gathered(pieces)
    if (pieces.length === 1) this.#writePiece(pieces[0]!, callback)
    else {
      const last = pieces.length - 1
      this.#socket.cork()
      for (let i = 0; i < last; i++) this.#writePiece(pieces[i]!, undefined)
      this.#writePiece(pieces[last]!, callback)
      this.#socket.uncork()
    }
  }

  #writePiece(piece: string | Uint8Array, callback: (() => void) | undefined): void {
    if (typeof piece === 'string') this.#socket.write(piece, 'latin1', callback)
    else this.#socket.write(piece, callback)
  }

  readonly #onWritten = (error?: Error | null): void => {
    try {
      this.#written(error)
    } catch (thrown) {
      this.#connection.threw(thrown)
    }
  }

  #written(error: Error | null | undefined): void {
    this.waiting -= this.#sizes.shift()!
    const owner = this.#owners.shift()
    const bytes = this.#debts.shift()!
    if (bytes > 0) owner!.sent(bytes)
    if (!error) this.#connection.wrote()
    const isHeldBack = this.#gathered !== undefined || this.#chunk !== undefined
    if (this.waiting === 0 && isHeldBack) this.#flush(this.#tellsAtOnce)
  }

  threw(error: unknown): void {
    this.#connection.threw(error)
  }

  /** Closes our half of the connection after everything that was written. */
  end(): void {
    if (this.#ending) return
    this.flush()
    this.#ending = true
    if (!this.#socket.destroyed) this.#socket.end()
  }
}

/** Writers that have something for the end of this tick, each once. A separate tick for each would cost more than a place here. */
let due: SocketWriter[] = []

function flushSoon(writer: SocketWriter): void {
  if (due.push(writer) === 1) process.nextTick(flushAll)
}

/** If one throws, its connection ends, and the other writers still flush. */
const flushDue = stepOf<SocketWriter>(writer => writer.flushDue())

function flushAll(): void {
  const writers = due
  due = []
  for (const writer of writers) flushDue(writer)
}

/** Where small pieces are joined. If a writer cannot send them at once, it keeps the buffer. */
let scratch: Buffer | undefined

function roomToJoin(): Buffer {
  scratch ??= Buffer.allocUnsafeSlow(COPY_BYTES)
  return scratch
}

function gathered(pieces: readonly (string | Uint8Array)[]): Uint8Array[] {
  const chunks = new GatheredChunks()
  for (const piece of pieces) chunks.add(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece)
  return [...chunks]
}

function join(pieces: (string | Uint8Array)[], whole: Buffer): Buffer {
  let at = 0
  for (const piece of pieces) {
    if (typeof piece === 'string') at += whole.write(piece, at, 'latin1')
    else {
      whole.set(piece, at)
      at += piece.length
    }
  }
  return whole
}
