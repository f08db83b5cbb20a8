/**
 * The minimum cost in Node of the shape of a tunnel: bytes of a socket as messages of a WebSocket over TLS, and back. It parses no
 * HTTP, multiplexes nothing (one connection at a time) and checks nothing. `server CERT KEY` prints the ports of its edge and of
 * the tunnel. `client PORT CA UPSTREAM` prints its own id once it is connected.
 */
import { readFileSync } from 'node:fs'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import process from 'node:process'
import { WebSocket, WebSocketServer } from 'ws'

const MAX_UNSENT_BYTES = 1024 * 1024
const OPTIONS = { perMessageDeflate: false, maxPayload: 256 * 1024 } as const
const [role, ...args] = process.argv.slice(2)

if (role === 'server') serve(args[0]!, args[1]!)
else dial(Number(args[0]), args[1]!, Number(args[2]))

function serve(certificate: string, key: string): void {
  const https = createHttpsServer({ cert: readFileSync(certificate), key: readFileSync(key), minVersion: 'TLSv1.3' })
  const sockets = new WebSocketServer({ server: https, ...OPTIONS })
  let tunnel: WebSocket
  let caller: Socket | undefined
  sockets.on('connection', ws => {
    tunnel = ws
    ws.on('message', (data, isBinary) => {
      if (isBinary) pass(data as Buffer, caller, ws)
      else caller?.end()
    })
  })
  const edge = createServer(socket => {
    caller = socket
    tunnel.send('open')
    read(socket, tunnel)
  })
  const listening = [edge, https].map(listen)
  void Promise.all(listening).then(ports => process.stdout.write(`${ports.join(' ')}\n`))
}

function listen(server: Server): Promise<number> {
  return new Promise(resolve => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
}

function dial(port: number, ca: string, upstreamPort: number): void {
  const tunnel = new WebSocket(`wss://127.0.0.1:${port}`, { ca: readFileSync(ca), ...OPTIONS })
  let upstream: Socket | undefined
  tunnel.on('open', () => process.stdout.write(`${process.pid}\n`))
  tunnel.on('message', (data, isBinary) => {
    if (isBinary) {
      pass(data as Buffer, upstream, tunnel)
      return
    }
    upstream = connect(upstreamPort, '127.0.0.1')
    upstream.on('end', () => tunnel.send('end'))
    read(upstream, tunnel)
  })
}

function read(socket: Socket, tunnel: WebSocket): void {
  socket.on('data', bytes => {
    tunnel.send(bytes, () => {
      if (tunnel.bufferedAmount < MAX_UNSENT_BYTES) socket.resume()
    })
    if (tunnel.bufferedAmount >= MAX_UNSENT_BYTES) socket.pause()
  })
  socket.on('error', () => {})
}

function pass(bytes: Buffer, socket: Socket | undefined, tunnel: WebSocket): void {
  if (socket === undefined || socket.write(bytes)) return
  tunnel.pause()
  const go = () => {
    socket.off('drain', go)
    socket.off('close', go)
    tunnel.resume()
  }
  socket.on('drain', go)
  socket.on('close', go)
}
