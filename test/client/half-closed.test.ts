/**
 * A WebSocket whose upstream has closed its half is not over: when it is reset or loses its session, it ends at the
 * upstream.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { type ReceivedRequest, Upstream } from '../support/upstream.ts'

let upstream: Upstream
let pair: Pair
let onUpgrade: (request: ReceivedRequest) => void

beforeEach(async () => {
  upstream = await Upstream.start()
  pair = await startPair({
    target: `http://127.0.0.1:${upstream.port}`,
    server: { public: { host: '127.0.0.1', port: 0 } },
  })
})
afterEach(async () => {
  await pair.stop()
  await upstream.stop()
})

/** The upstream's side of it, with its half closed, and the caller's, which has seen that. */
async function halfClosed(): Promise<{ caller: Socket; request: ReceivedRequest; gone: Promise<void> }> {
  const begun = new Promise<ReceivedRequest>(resolve => {
    onUpgrade = resolve
  })
  upstream.answers.set('/ws', async request => {
    const { socket, fields } = request
    const key = fields[fields.findIndex(text => text.toLowerCase() === 'sec-websocket-key') + 1]!
    const lines = `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n`
    socket.end(`${lines}sec-websocket-accept: ${webSocketAccept(key)}\r\n\r\n`)
    onUpgrade(request)
    await request.gone()
  })
  const caller = connect({ port: pair.place.port, host: '127.0.0.1', allowHalfOpen: true })
  caller.on('error', () => {})
  caller.write(
    `GET /ws HTTP/1.1\r\nhost: ${pair.place.authority}\r\nconnection: upgrade\r\nupgrade: websocket\r\n` +
      'sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n',
  )
  caller.resume()
  const request = await begun
  await once(caller, 'end')
  const gone = once(request.socket, 'close').then(() => {})
  return { caller, request, gone }
}

describe('a WebSocket whose upstream has closed its half', () => {
  test('and whose caller resets ends at the upstream', async () => {
    const { caller, gone } = await halfClosed()
    caller.resetAndDestroy()
    await gone
    expect(pair.tunnel.stats().exchanges.live).toBe(0)
  })

  test('and whose session is lost ends at the upstream', async () => {
    const { caller, gone } = await halfClosed()
    await pair.server.close({ graceMs: 0 })
    await gone
    expect(pair.tunnel.stats().exchanges.live).toBe(0)
    caller.destroy()
  })

  test('and whose caller closes the other half ends at the upstream, too', async () => {
    const { caller, gone } = await halfClosed()
    caller.end()
    await gone
  })
})
