/** A caller over TLS that sends bytes that are no TLS record, in one packet with good ones. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { connect as connectTls, Server as TlsServer } from 'node:tls'
import { vi } from 'vitest'

const NO_RECORD = Buffer.from('ffffffffffffffff', 'hex')

/** Sends them behind `text`, or, if that is absent, behind the end of its handshake, and then resets the connection. */
export async function callBadly(port: number, text?: string): Promise<void> {
  const raw = connect(port, '127.0.0.1')
  raw.on('error', () => {})
  const closed = once(raw, 'close')
  let held: Buffer[] | undefined
  const wire = new Duplex({
    read() {},
    write(bytes: Buffer, _, done) {
      if (held === undefined) raw.write(bytes)
      else held.push(bytes)
      // After the ClientHello comes the end of the handshake.
      if (text === undefined) held ??= []
      done()
    },
  })
  raw.on('data', bytes => wire.push(bytes))
  const caller = connectTls({ socket: wire as Socket, rejectUnauthorized: false })
  caller.on('error', () => {})
  await once(caller, 'secureConnect')
  held ??= []
  if (text !== undefined) caller.write(text)
  await new Promise(setImmediate)
  raw.write(Buffer.concat([...held, NO_RECORD]))
  if (text === undefined) raw.resetAndDestroy()
  await closed
  caller.destroy()
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
