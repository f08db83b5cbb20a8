/** Peers that send bytes that are no TLS record in one packet with good ones. */
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { connect as connectTls, createSecureContext, TLSSocket, Server as TlsServer } from 'node:tls'
import { vi } from 'vitest'
import { ignore } from '../../protocol/base/guard.ts'
import type { Secrets } from './secrets.ts'

const NO_RECORD = Buffer.from('ffffffffffffffff', 'hex')

/** Carries the bytes of a TLS socket to and from `raw`. */
class Wire extends Duplex {
  readonly #raw: Socket
  #held: Buffer[] | undefined

  constructor(raw: Socket) {
    super()
    this.#raw = raw
    raw.on('error', ignore)
    raw.on('data', bytes => this.push(bytes))
  }

  override _read(): void {}

  override _write(bytes: Buffer, _encoding: string, done: () => void): void {
    if (this.#held === undefined) this.#raw.write(bytes)
    else this.#held.push(bytes)
    done()
  }

  /** Sends nothing until the next call of `spoil`. */
  hold(): void {
    this.#held ??= []
  }

  /** Sends what was held, with bytes behind it that are no record. */
  spoil(): void {
    this.#raw.write(Buffer.concat([...this.#held!, NO_RECORD]))
    this.#held = undefined
  }
}

/** Calls with bad bytes behind `text`, or, if that is absent, behind the end of its handshake, and then resets the connection. */
export async function callBadly(port: number, text?: string): Promise<void> {
  const raw = connect(port, '127.0.0.1')
  const closed = once(raw, 'close')
  const wire = new Wire(raw)
  const caller = connectTls({ socket: wire as Duplex as Socket, rejectUnauthorized: false })
  caller.on('error', ignore)
  if (text === undefined) raw.prependOnceListener('data', () => wire.hold())
  await once(caller, 'secureConnect')
  wire.hold()
  if (text !== undefined) caller.write(text)
  await new Promise(setImmediate)
  wire.spoil()
  if (text === undefined) raw.resetAndDestroy()
  await closed
  caller.destroy()
}

/** A server that answers each request with bad bytes behind `answer`. */
export function answeringBadly({ server }: Secrets, answer: string): Server {
  const secureContext = createSecureContext(server)
  return createServer(raw => {
    const wire = new Wire(raw)
    const socket = new TLSSocket(wire as Duplex as Socket, { isServer: true, secureContext })
    socket.on('error', ignore)
    socket.once('data', () => {
      wire.hold()
      socket.write(answer)
      setImmediate(() => wire.spoil())
    })
  })
}

/**
 * Takes away the listener for errors that newer versions of Node add to each socket of a TLS server. The returned list gets, for each error of
 * TLS, how many listeners the socket has. An error without any ends the process.
 */
export function withoutNodesListener(): number[] {
  const listeners: number[] = []
  const emit = TlsServer.prototype.emit
  vi.spyOn(TlsServer.prototype, 'emit').mockImplementation(function (this: TlsServer, event, ...args) {
    if (event === 'secureConnection') {
      const [socket] = args
      socket.removeAllListeners('error')
      socket.on('_tlsError', () => listeners.push(socket.listenerCount('error')))
    }
    return Reflect.apply(emit, this, [event, ...args])
  })
  return listeners
}
