/** HTTP/2 sessions without a listener of ours. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { serveHttp2 } from '../../protocol/http/http2/server-session.ts'
import { call, type RawPeer } from '../protocol/http/http1/raw.ts'

/** A caller of such a session, over TCP. What `open` gets ends both. */
export async function callHttp2(options: Parameters<typeof serveHttp2>[1], open: (() => unknown)[]): Promise<RawPeer> {
  const server = createServer((socket: Socket) => void serveHttp2(socket, options)).listen(0, '127.0.0.1')
  open.push(() => server.close())
  await once(server, 'listening')
  const peer = await call((server.address() as AddressInfo).port)
  open.push(() => peer.socket.destroy())
  return peer
}
