import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { collectGarbage } from '../../../load-tests/lib/garbage.ts'
import { MAX_MESSAGE_BYTES, type Transport, WEBSOCKET_OPTIONS } from '../../../protocol/wire/transport.ts'
import { webSocketTransport } from '../../../protocol/wire/transport-websocket.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { until } from '../../support/until.ts'
import { echo, pattern, StreamRecorder } from './yamux/support.ts'

const endings: (() => void)[] = []
afterEach(() => {
  for (const end of endings.splice(0)) end()
})

interface Heard {
  bytes: Uint8Array[]
  controls: string[]
  closed: { code: number; reason: string; error: Error | undefined } | undefined
}

async function webSockets(): Promise<[WebSocket, WebSocket]> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', ...WEBSOCKET_OPTIONS })
  await new Promise(resolve => server.once('listening', resolve))
  const accepted = new Promise<WebSocket>(resolve => server.once('connection', resolve))
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, WEBSOCKET_OPTIONS)
  await new Promise(resolve => client.once('open', resolve))
  endings.push(() => {
    client.terminate()
    server.close()
  })
  return [await accepted, client]
}

function listen(transport: Transport, order: string[] = []): Heard {
  const heard: Heard = { bytes: [], controls: [], closed: undefined }
  transport.handler = {
    bytes: chunk => {
      heard.bytes.push(chunk)
      order.push('bytes')
    },
    control: text => {
      heard.controls.push(text)
      order.push('control')
    },
    closed: (code, reason, error) => {
      heard.closed = { code, reason, error }
    },
  }
  return heard
}

describe('WebSocket transport', () => {
  test('P1 a handler that throws ends its connection', async () => {
    const [sender, receiver] = await webSockets()
    const transport = webSocketTransport(receiver)
    const heard = listen(transport)
    const defect = new Error('defect')
    transport.handler!.bytes = () => {
      throw defect
    }
    sender.send(Buffer.of(0))
    await until(() => heard.closed !== undefined)
    expect(heard.closed?.error).toBe(defect)
  })

  test.each(['server', 'client'])(
    '%s: bytes and control messages arrive in order, cut into messages of 128 KiB',
    async from => {
      const sockets = await webSockets()
      const [sender, receiver] = from === 'server' ? sockets : [sockets[1], sockets[0]]
      const transport = webSocketTransport(sender)
      const messages: Buffer[] = []
      receiver.on('message', data => messages.push(data as Buffer))
      const body = pattern(MAX_MESSAGE_BYTES * 2 + 5)
      let sent = 0
      transport.control('{"type":"first"}')
      transport.bytes(body, () => sent++)
      transport.bytes(Buffer.from('tail'), () => sent++)
      transport.control('{"type":"last"}')
      await until(() => messages.length === 6 && sent === 2)
      expect(messages.map(({ length }) => length)).toEqual([16, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, 5, 4, 15])
      expect(Buffer.concat(messages.slice(1, 5)).equals(Buffer.concat([body, Buffer.from('tail')]))).toBe(true)
    },
  )

  test.each(['server', 'client'])('%s: what the other end sent arrives, bytes between control messages', async from => {
    const sockets = await webSockets()
    const [sender, receiver] = from === 'server' ? sockets : [sockets[1], sockets[0]]
    const transport = webSocketTransport(sender)
    const order: string[] = []
    const heard = listen(webSocketTransport(receiver), order)
    const body = pattern(MAX_MESSAGE_BYTES * 2 + 5)
    transport.control('{"type":"first"}')
    transport.bytes(body, () => {})
    transport.control('{"type":"last"}')
    await until(() => heard.controls.length === 2)
    expect(Buffer.concat(heard.bytes).equals(body)).toBe(true)
    expect(heard.controls).toEqual(['{"type":"first"}', '{"type":"last"}'])
    expect([order[0], order.at(-1), new Set(order.slice(1, -1))]).toEqual(['control', 'control', new Set(['bytes'])])
  })

  test("masking leaves the sender's buffers unchanged", async () => {
    const [server, client] = await webSockets()
    const heard = listen(webSocketTransport(server))
    const body = pattern(100_000)
    webSocketTransport(client).bytes(body, () => {})
    await until(() => heard.bytes.reduce((sum, { length }) => sum + length, 0) === body.length)
    expect(body.equals(pattern(100_000))).toBe(true)
  })

  test.each([
    [1000, undefined],
    [1001, undefined],
    [1002, /1002/],
  ])('a close with %i', async (code, message) => {
    const [server, client] = await webSockets()
    const heard = listen(webSocketTransport(server))
    webSocketTransport(client).close(code, `because ${'é'.repeat(100)}`)
    await until(() => heard.closed !== undefined)
    expect(heard.closed!.code).toBe(code)
    expect(heard.closed!.reason).toMatch(/^because é+$/)
    if (message === undefined) expect(heard.closed!.error).toBeUndefined()
    else expect(heard.closed!.error!.message).toMatch(message)
  })

  test('a cut resets the connection, is reported with an error, and later calls do nothing', async () => {
    const [server, client] = await webSockets()
    const broken = once((server as unknown as { _socket: Socket })._socket, 'error')
    const heard = listen(webSocketTransport(server))
    const cut = webSocketTransport(client)
    const own = listen(cut)
    cut.terminate()
    expect(await broken).toMatchObject([{ code: 'ECONNRESET' }])
    await until(() => heard.closed !== undefined && own.closed !== undefined)
    expect(heard.closed).toMatchObject({ code: 1006, error: expect.any(Error) })
    let sent = 0
    cut.bytes(Buffer.from('late'), () => sent++)
    cut.control('{}')
    cut.close(1000, '')
    cut.terminate()
    await new Promise(resolve => setImmediate(resolve))
    expect(sent).toBe(0)
  })

  test('W4 a message above 128 KiB closes with 1009', async () => {
    const [server, client] = await webSockets()
    const heard = listen(webSocketTransport(server))
    const code = new Promise(resolve => client.once('close', resolve))
    client.send(Buffer.alloc(MAX_MESSAGE_BYTES + 1))
    expect(await code).toBe(1009)
    await until(() => heard.closed !== undefined)
    expect(heard.closed!.error).toBeInstanceOf(Error)
    expect(heard.bytes).toHaveLength(0)
  })

  test('W4 a message of more than 16 fragments closes with 1008', async () => {
    const [server, client] = await webSockets()
    const heard = listen(webSocketTransport(server))
    const code = new Promise(resolve => client.once('close', resolve))
    for (let i = 0; i < 17; i++) client.send('a', { fin: false })
    expect(await code).toBe(1008)
    await until(() => heard.closed !== undefined)
    expect(heard.closed!.error).toBeInstanceOf(Error)
    expect(heard.bytes).toHaveLength(0)
  })

  test.each(['control message', 'fragment'])(
    'a %s that arrives byte by byte keeps little more than its size',
    async kind => {
      const [server] = await webSockets()
      const heard = listen(webSocketTransport(server))
      const { _socket: socket } = server as unknown as { _socket: Socket }
      const slab = (...bytes: number[]) => {
        const all = Buffer.alloc(64 * 1024)
        all.set(bytes, 1000)
        return all.subarray(1000, 1000 + bytes.length)
      }
      const count = 500
      // Masked with zeros, as a client must mask.
      const first = kind === 'fragment' ? 0x01 : 0x81
      socket.emit('data', slab(first, 0x80 | 126, count >> 8, count & 0xff, 0, 0, 0, 0))
      await collectGarbage()
      const before = process.memoryUsage().arrayBuffers
      for (let i = 1; i < count; i++) socket.emit('data', slab(0x61))
      await collectGarbage()
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(512 * 1024)
      socket.emit('data', slab(0x61))
      if (kind === 'fragment') socket.emit('data', slab(0x80, 0x80, 0, 0, 0, 0))
      expect(heard.controls).toEqual(['a'.repeat(count)])
    },
  )

  test('W4 a control message above 16 KiB ends the session', async () => {
    const [server, client] = await webSockets()
    const reasons: string[] = []
    createSession(webSocketTransport(server), { role: 'server', onClose: (_, reason) => reasons.push(reason) })
    const code = new Promise(resolve => client.once('close', resolve))
    client.send('é'.repeat(8 * 1024 + 1))
    expect(await code).toBe(1002)
    expect(reasons).toEqual(['a control message is too large'])
  })

  test('sessions echo 100 streams over a real socket', async () => {
    const [left, right] = await webSockets()
    const server = createSession(webSocketTransport(left), { role: 'server' })
    createSession(webSocketTransport(right), { role: 'client', onStream: echo })
    const body = pattern(200_000)
    const recorders = Array.from({ length: 100 }, () => {
      const recorder = new StreamRecorder(server.open())
      recorder.stream.write(body)
      recorder.stream.end()
      return recorder
    })
    await until(() => recorders.every(({ ended }) => ended))
    for (const { chunks } of recorders) expect(Buffer.concat(chunks).equals(body)).toBe(true)
    server.close('done')
  })
})
