import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import { HEADROOM_BYTES, type TransportHandler } from '../../../protocol/wire/transport.ts'
import { PeerTransport } from '../../../server/peer/transport.ts'

class Ear implements TransportHandler {
  said: string[] = []
  readonly over = Promise.withResolvers<{ code: number; reason: string; clean: boolean }>()

  bytes(chunk: Uint8Array): void {
    this.said.push(Buffer.from(chunk).toString())
  }

  control(text: string): void {
    this.said.push(`control ${text}`)
  }

  closed(code: number, reason: string, error: Error | undefined): void {
    this.over.resolve({ code, reason, clean: error === undefined })
  }
}

const open: Socket[] = []
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy()
})

/** TLS is not tested here. */
async function pair(): Promise<[Socket, Socket]> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const left = connect((server.address() as { port: number }).port)
  const [right] = (await once(server, 'connection')) as [Socket]
  server.close()
  open.push(left, right)
  return [left, right]
}

function transport(socket: Socket): { transport: PeerTransport; ear: Ear } {
  const made = new PeerTransport(socket as TLSSocket)
  const ear = new Ear()
  made.handler = ear
  return { transport: made, ear }
}

/** Messages as they appear on the wire. */
function message(kind: number, text: string): Buffer {
  const head = Buffer.alloc(4)
  head.writeUInt32BE((kind << 24) + text.length)
  return Buffer.concat([head, Buffer.from(text)])
}

describe('the connection between two replicas', () => {
  test('carries bytes and control messages in order, and the end with its reason', async () => {
    const [left, right] = (await pair()).map(transport) as [ReturnType<typeof transport>, ReturnType<typeof transport>]
    const sent = Promise.withResolvers<void>()
    left.transport.bytes(Buffer.from('one'), () => {})
    left.transport.control('{"two":2}')
    const pooled = Buffer.alloc(HEADROOM_BYTES + 5)
    pooled.write('three', HEADROOM_BYTES)
    left.transport.pooled(pooled, pooled.length, sent.resolve)
    await sent.promise
    left.transport.close(1001, 'it stops')
    expect(await right.ear.over.promise).toEqual({ code: 1001, reason: 'it stops', clean: true })
    expect(right.ear.said).toEqual(['one', 'control {"two":2}', 'three'])
  })

  test('however it is cut into chunks', async () => {
    const whole = Buffer.concat([message(0, 'abc'), message(1, '{}'), message(0, 'd'), message(2, '1000 bye')])
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(whole.length), { maxLength: 8 }), async cuts => {
        const [raw, socket] = await pair()
        const { ear } = transport(socket)
        const places = [0, ...cuts.sort((a, b) => a - b), whole.length]
        for (let i = 1; i < places.length; i++) {
          socket.emit('data', whole.subarray(places[i - 1], places[i]))
        }
        raw.destroy()
        expect(ear.said.join('')).toBe('abccontrol {}d')
        expect((await ear.over.promise).code).toBe(1000)
      }),
      { numRuns: 60 },
    )
  })

  test.each([
    ['a kind that is none', Buffer.from([9, 0, 0, 1, 0])],
    ['a message of no bytes', Buffer.from([0, 0, 0, 0])],
    ['a control message that is too long', Buffer.from([1, 0x20, 0, 0])],
    ['bytes that are too many', Buffer.from([0, 2, 0, 1])],
  ])('%s ends it', async (_name, bytes) => {
    const [raw, socket] = await pair()
    const { ear } = transport(socket)
    raw.write(bytes)
    expect((await ear.over.promise).clean).toBe(false)
    expect(ear.said).toEqual([])
  })

  test('a connection that breaks is not clean', async () => {
    const [raw, socket] = await pair()
    const { ear } = transport(socket)
    raw.resetAndDestroy()
    expect(await ear.over.promise).toMatchObject({ code: 1006, clean: false })
  })
})
