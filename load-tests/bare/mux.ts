/**
 * The minimum cost in Node of carrying many connections over one: bytes of sockets, each piece with an eight-byte prefix, over TLS and
 * back. What arrives in one turn of the event loop leaves in one write, like in our tunnel. It parses no HTTP, checks nothing and
 * bounds nothing. `server CERT KEY` prints the ports of its edge and of the tunnel. `client PORT CA UPSTREAM` prints its own id
 * once it is connected.
 */
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import process from 'node:process'
import { createServer as createTlsServer, type TLSSocket, connect as tlsConnect } from 'node:tls'
import { SocketReader } from '../../protocol/http/http1/socket-reader.ts'

const HEAD_BYTES = 8
const reader = new SocketReader()
const [role, ...args] = process.argv.slice(2)

/** A frame is the number of a connection, a length, and that many bytes. */
class Tunnel {
  readonly #socket: TLSSocket
  readonly #open: (id: number) => Socket | undefined
  readonly #sockets = new Map<number, Socket>()
  #pieces: Buffer[] = []
  #rest: Buffer | undefined

  constructor(socket: TLSSocket, open: (id: number) => Socket | undefined) {
    this.#socket = socket
    this.#open = open
    socket.setNoDelay(true)
    socket.on('data', bytes => this.#received(bytes as Buffer))
  }

  take(id: number, socket: Socket): void {
    this.#sockets.set(id, socket)
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.on('close', () => this.#sockets.delete(id))
    const onRead = (bytes: Buffer) => {
      this.#send(id, bytes)
      return true
    }
    reader.read(socket, onRead, { threw: () => socket.destroy() })
  }

  #send(id: number, bytes: Buffer): void {
    const frame = Buffer.allocUnsafe(HEAD_BYTES + bytes.length)
    frame.writeUInt32BE(id, 0)
    frame.writeUInt32BE(bytes.length, 4)
    bytes.copy(frame, HEAD_BYTES)
    if (this.#pieces.push(frame) === 1) setImmediate(this.#flush)
  }

  readonly #flush = (): void => {
    const pieces = this.#pieces
    this.#pieces = []
    this.#socket.write(pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces))
  }

  #received(chunk: Buffer): void {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk])
    let at = 0
    while (bytes.length - at >= HEAD_BYTES) {
      const end = at + HEAD_BYTES + bytes.readUInt32BE(at + 4)
      if (end > bytes.length) break
      const id = bytes.readUInt32BE(at)
      const socket = this.#sockets.get(id) ?? this.#open(id)
      socket?.write(bytes.subarray(at + HEAD_BYTES, end))
      at = end
    }
    this.#rest = at === bytes.length ? undefined : bytes.subarray(at)
  }
}

async function serve(certificate: string, key: string): Promise<void> {
  let tunnel: Tunnel
  let ids = 0
  const inner = createTlsServer(
    { cert: readFileSync(certificate), key: readFileSync(key), minVersion: 'TLSv1.3' },
    end => {
      tunnel = new Tunnel(end, () => undefined)
    },
  )
  const edge = createServer(socket => tunnel.take(++ids, socket))
  const ports = [await portOf(edge), await portOf(inner)]
  process.stdout.write(`${ports.join(' ')}\n`)
}

function portOf(server: Server): Promise<number> {
  return new Promise(resolve => {
    server.listen(0, '127.0.0.1', 4096, () => resolve((server.address() as AddressInfo).port))
  })
}

function dial(port: number, ca: string, upstreamPort: number): void {
  const end = tlsConnect({ port, host: '127.0.0.1', ca: readFileSync(ca) }, () => {
    process.stdout.write(`${process.pid}\n`)
  })
  const tunnel: Tunnel = new Tunnel(end, id => {
    const socket = connect(upstreamPort, '127.0.0.1')
    tunnel.take(id, socket)
    return socket
  })
}

if (role === 'server') await serve(args[0]!, args[1]!)
else dial(Number(args[0]), args[1]!, Number(args[2]))
