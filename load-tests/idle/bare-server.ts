/** The minimum cost of a session: a server that holds TLS sockets, or `ws` sessions, and echoes. Prints its port. */
import { readFileSync } from 'node:fs'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo, Server } from 'node:net'
import { createServer } from 'node:tls'
import { WebSocketServer } from 'ws'

const [kind, certificate, key] = process.argv.slice(2) as ['tls' | 'websocket', string, string]
const tls = { cert: readFileSync(certificate), key: readFileSync(key), minVersion: 'TLSv1.3' } as const

function tlsServer(): Server {
  return createServer(tls, socket => {
    socket.on('data', data => socket.write(data))
    socket.on('error', () => {})
  })
}

function webSocketServer(): Server {
  const server = createHttpsServer(tls)
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: 128 * 1024 })
  sockets.on('connection', socket => {
    socket.on('message', data => socket.send(data))
    socket.on('error', () => {})
  })
  return server
}

const server = kind === 'tls' ? tlsServer() : webSocketServer()
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`)
})
