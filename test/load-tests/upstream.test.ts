/** The service behind the load tests, under callers that do not do what the load tests do. */
import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { serveApp } from '../../load-tests/upstream/app.ts'
import { PATHS, SMALL_BODY } from '../../load-tests/upstream/service.ts'

const MIB = 1024 * 1024
let app: Server
let place = ''
beforeEach(async () => {
  app = await serveApp('127.0.0.1', 0)
  place = `127.0.0.1:${(app.address() as AddressInfo).port}`
})
afterEach(() => {
  app.closeAllConnections()
  app.close()
})

test('HEAD of any body is answered at once', async () => {
  const path = `${PATHS.bytes}${Number.MAX_SAFE_INTEGER}`
  const { headers } = await fetch(`http://${place}${path}`, { method: 'HEAD' })
  expect(headers.get('content-length')).toBe(String(Number.MAX_SAFE_INTEGER))
  expect(await (await fetch(`http://${place}${PATHS.small}`)).text()).toBe(SMALL_BODY)
})

async function open(): Promise<WebSocket> {
  const socket = new WebSocket(`ws://${place}${PATHS.echo}`, { perMessageDeflate: false })
  await once(socket, 'open')
  return socket
}

test('a caller that reads no echoes is not read from until it does', async () => {
  const [stalled, other] = [await open(), await open()]
  stalled.pause()
  for (let sent = 0; sent < 64; sent++) stalled.send(Buffer.alloc(MIB, sent))
  let before: number
  do {
    before = stalled.bufferedAmount
    for (let trip = 0; trip < 20; trip++) {
      other.send('x')
      await once(other, 'message')
    }
  } while (stalled.bufferedAmount !== before)
  expect(before).toBeGreaterThan(0)
  stalled.resume()
  for (let read = 0; read < 64; read++) {
    const [echo] = (await once(stalled, 'message')) as [Buffer]
    expect(echo.equals(Buffer.alloc(MIB, read))).toBe(true)
  }
  stalled.terminate()
  other.terminate()
})
