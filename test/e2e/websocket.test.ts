import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type WebSocket, WebSocketServer } from 'ws'
import { ByteReader } from '../support/byte-reader.ts'
import type { Caller } from '../support/caller.ts'
import { dial } from '../support/caller-http1.ts'
import { readHead, value } from '../support/http1-wire.ts'
import { allEntries, describeThrough, http1Entries, Stack } from '../support/stack.ts'

const MESSAGE_BYTES = 10 * 1024 * 1024

let echo: Server
let stack: Stack
/** What the upstream's side saw, in order. */
let upstreamSaw: string[]
let upstreamClosed: Promise<string>

beforeAll(async () => {
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: 2 * MESSAGE_BYTES,
    perMessageDeflate: true,
    handleProtocols: offered => [...offered].at(-1) ?? false,
  })
  echo = createServer((_, response) => response.writeHead(426).end('upgrade, please')).listen(0, '127.0.0.1')
  echo.on('upgrade', (request, socket, head) => {
    if (request.url?.endsWith('/refused')) {
      socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nx-why: because\r\n\r\nno')
      return
    }
    server.handleUpgrade(request, socket, head, serve)
  })
  await once(echo, 'listening')
  const target = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`
  stack = await Stack.start(() => ({ routes: [{ name: 'echo', match: { path: '/' }, target }] }))
})
afterAll(async () => {
  await stack?.stop()
  echo?.closeAllConnections()
  echo?.close()
})

function serve(ws: WebSocket): void {
  upstreamSaw = []
  ws.on('ping', data => upstreamSaw.push(`ping ${data}`))
  ws.on('pong', data => upstreamSaw.push(`pong ${data}`))
  upstreamClosed = once(ws, 'close').then(([code, reason]) => `${code} ${reason}`)
  ws.on('error', () => {})
  ws.on('message', (data, isBinary) => {
    const text = isBinary ? '' : String(data)
    if (text === 'ping me') ws.ping('from upstream')
    else if (text.startsWith('close me ')) ws.close(Number(text.slice(9)), 'as asked')
    else if (text === 'break') ws.terminate()
    else ws.send(data, { binary: isBinary })
  })
}

async function take(ws: WebSocket): Promise<{ data: Buffer; isBinary: boolean }> {
  const [data, isBinary] = (await once(ws, 'message')) as [Buffer, boolean]
  return { data, isBinary }
}

describeThrough(allEntries, name => {
  let caller: Caller
  beforeAll(async () => {
    caller = await stack.caller(name)
  })

  it('text and binary messages keep their kind and their bytes', async () => {
    const ws = await caller.webSocket('/ws')
    for (const [message, isBinary] of [
      ['h\u00e9llo \ud83d\ude80', false],
      ['', false],
      [Buffer.from([0, 255, 10, 13]), true],
    ] as const) {
      ws.send(message, { binary: isBinary })
      const seen = await take(ws)
      expect(seen.isBinary).toBe(isBinary)
      expect(seen.data.equals(Buffer.from(message))).toBe(true)
    }
    ws.terminate()
  })

  it('ping and pong go end to end, in both directions', async () => {
    const ws = await caller.webSocket('/ws')
    ws.ping('from caller')
    const [pong] = await once(ws, 'pong')
    expect(String(pong)).toBe('from caller')
    ws.send('ping me')
    const [ping] = await once(ws, 'ping')
    expect(String(ping)).toBe('from upstream')
    ws.send('done')
    await take(ws)
    expect(upstreamSaw).toEqual(['ping from caller', 'pong from upstream'])
    ws.terminate()
  })

  it('close codes and reasons pass in both directions', async () => {
    const first = await caller.webSocket('/ws')
    first.send('close me 4321')
    const [code, reason] = await once(first, 'close')
    expect([code, String(reason)]).toEqual([4321, 'as asked'])
    const second = await caller.webSocket('/ws')
    second.close(4000, 'my own')
    const [echoed] = await once(second, 'close')
    expect(echoed).toBe(4000)
    expect(await upstreamClosed).toBe('4000 my own')
  })

  it('an upstream that breaks is not a clean close', async () => {
    const ws = await caller.webSocket('/ws')
    ws.on('error', () => {})
    ws.send('break')
    const [code] = await once(ws, 'close')
    expect(code).toBe(1006)
  })

  it('messages of 10 MB, in both directions', async () => {
    const ws = await caller.webSocket('/ws')
    const message = Buffer.alloc(MESSAGE_BYTES, 'a message of ten megabytes. ')
    ws.send(message)
    const { data } = await take(ws)
    expect(data.equals(message)).toBe(true)
    ws.close()
    await once(ws, 'close')
  })

  it('several at once do not mix', async () => {
    const sockets = await Promise.all(Array.from({ length: 8 }, () => caller.webSocket('/ws')))
    await Promise.all(
      sockets.map(async (ws, i) => {
        for (let n = 0; n < 20; n++) {
          ws.send(`${i}.${n}`)
          expect(String((await take(ws)).data)).toBe(`${i}.${n}`)
        }
        ws.close()
        await once(ws, 'close')
      }),
    )
  })

  it('the upstream chooses the subprotocol', async () => {
    const ws = await caller.webSocket('/ws', { protocols: ['graphql-ws', 'graphql-transport-ws'] })
    expect(ws.protocol).toBe('graphql-transport-ws')
    ws.terminate()
  })
})

describeThrough(http1Entries, name => {
  it('extensions are negotiated end to end: compressed frames pass unchanged', async () => {
    const caller = await stack.caller(name)
    const ws = await caller.webSocket('/ws', { perMessageDeflate: true })
    expect(ws.extensions).toContain('permessage-deflate')
    const text = 'again and again, '.repeat(1000)
    ws.send(text)
    expect(String((await take(ws)).data)).toBe(text)
    ws.terminate()
  })

  it('an upstream that declines is heard, and nothing sent behind the handshake reaches it', async () => {
    const place = stack.place(name)
    const socket = await dial(place)
    const key = Buffer.alloc(16, 7).toString('base64')
    socket.write(
      `GET /refused HTTP/1.1\r\nhost: ${place.authority}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\nbytes that came too early`,
    )
    const reader = new ByteReader(socket)
    const head = await readHead(reader)
    expect(head?.start).toMatch(/^HTTP\/1\.1 403 /)
    expect(value(head?.fields ?? [], 'x-why')).toBe('because')
    expect((await reader.exactly(2)).toString()).toBe('no')
    socket.destroy()
  })
})
