import { Buffer } from 'node:buffer'
import type { Writable } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import * as wsModule from 'ws'
import { MAX_MESSAGE_BYTES } from '../../../protocol/wire/transport.ts'
import { WebSocketReader } from '../../../protocol/wire/websocket-reader.ts'

type WsReceiver = Writable & { readonly _errored: boolean }
const { Receiver } = wsModule as unknown as { Receiver: new (options: object) => WsReceiver }

interface Frame {
  readonly first: number
  readonly payload: Buffer
  readonly mask: Buffer | undefined
}

function encode({ first, payload, mask }: Frame): Buffer {
  const { length } = payload
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10)
  head[0] = first
  head[1] = (length < 126 ? length : length < 65_536 ? 126 : 127) | (mask === undefined ? 0 : 0x80)
  if (head.length === 4) head.writeUInt16BE(length, 2)
  if (head.length === 10) head.writeUInt32BE(length, 6)
  if (mask === undefined) return Buffer.concat([head, payload])
  return Buffer.concat([head, mask, payload.map((byte, i) => byte ^ mask[i & 3]!)])
}

/** What is heard of the bytes: binary bytes are joined where nothing comes in between. */
class Ear {
  readonly events: [kind: string, what: string][] = []

  bytes(bytes: Buffer): void {
    const last = this.events.at(-1)
    if (last?.[0] === 'bytes') last[1] += bytes.toString('hex')
    else if (bytes.length > 0) this.events.push(['bytes', bytes.toString('hex')])
  }

  /** A `ws` receiver that reports the same events. */
  receiver(isServer: boolean): WsReceiver {
    const receiver = new Receiver({ isServer, maxPayload: MAX_MESSAGE_BYTES, maxFragments: 16 })
    receiver.on('message', (data: Buffer, binary: boolean) => {
      if (binary) this.bytes(data)
      else this.events.push(['text', data.toString()])
    })
    for (const kind of ['ping', 'pong'])
      receiver.on(kind, (data: Buffer) => this.events.push([kind, data.toString('hex')]))
    receiver.on('conclude', (code: number) => this.events.push(['close', String(code)]))
    receiver.on('error', (error: NodeJS.ErrnoException) => this.events.push(['error', error.code ?? '']))
    return receiver
  }
}

const turn = () => new Promise(resolve => setImmediate(resolve))

async function byWs(chunks: readonly Buffer[], isServer: boolean): Promise<Ear> {
  const ear = new Ear()
  const receiver = ear.receiver(isServer)
  for (const chunk of chunks) {
    if (receiver.destroyed) break
    receiver.write(Buffer.from(chunk))
    await turn()
  }
  return ear
}

async function byReader(chunks: readonly Buffer[], isServer: boolean): Promise<Ear> {
  const ear = new Ear()
  const receiver = ear.receiver(isServer)
  const reader = new WebSocketReader(
    {
      peerMasks: isServer,
      unmask(bytes, mask) {
        const key = Buffer.alloc(4)
        key.writeUInt32BE(mask)
        for (let i = 0; i < bytes.length; i++) bytes[i]! ^= key[i & 3]!
      },
      read: bytes => ear.bytes(bytes),
      empty: () => true,
      passOn(bytes) {
        receiver.write(Buffer.from(bytes))
        return !receiver._errored
      },
    },
    MAX_MESSAGE_BYTES,
  )
  for (const chunk of chunks) {
    reader.push(Buffer.from(chunk))
    await turn()
  }
  return ear
}

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const places = [0, ...at.map(place => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]
  return places.slice(1).map((end, i) => bytes.subarray(places[i], end))
}

const mask = Buffer.from([1, 0x80, 3, 0xff])
const binary = (bytes: number, isServer = true): Frame => ({
  first: 0x82,
  payload: Buffer.from(Array.from({ length: bytes }, (_, i) => i * 7)),
  mask: isServer ? mask : undefined,
})

describe('reader of WebSockets', () => {
  test.each([true, false])('frames cut at every byte (peer masks: %s)', async isServer => {
    const text: Frame = { first: 0x81, payload: Buffer.from('{"a":1}'), mask: isServer ? mask : undefined }
    const frames = [binary(3, isServer), text, binary(0, isServer), binary(200, isServer), text, binary(5, isServer)]
    const bytes = Buffer.concat(frames.map(encode))
    const expected = (await byWs([bytes], isServer)).events
    expect(expected).toHaveLength(5)
    for (let at = 0; at <= bytes.length; at++)
      expect((await byReader(cut(bytes, [at]), isServer)).events, `cut at ${at}`).toEqual(expected)
    const each = Array.from(bytes, byte => Buffer.of(byte))
    expect((await byReader(each, isServer)).events).toEqual(expected)
  })

  test('a plain binary message passes before it is complete', () => {
    const heard: Buffer[] = []
    const read = (bytes: Buffer) => heard.push(bytes)
    const owner = { peerMasks: false, unmask() {}, read, empty: () => true, passOn: () => true }
    new WebSocketReader(owner, MAX_MESSAGE_BYTES).push(encode(binary(100, false)).subarray(0, 40))
    expect(Buffer.concat(heard)).toHaveLength(38)
  })

  test('a message over the limit, an unmasked one, and bytes after a close are refused as `ws` does', async () => {
    for (const frames of [
      [binary(MAX_MESSAGE_BYTES + 1)],
      [binary(10), binary(10, false), binary(10)],
      [{ first: 0x88, payload: Buffer.from([0x03, 0xe8]), mask }, binary(10)],
    ]) {
      const chunks = [Buffer.concat(frames.map(encode))]
      expect((await byReader(chunks, true)).events).toEqual((await byWs(chunks, true)).events)
    }
  })

  test('whatever arrives, cut anywhere, is reported as `ws` reports it', async () => {
    const plain = fc.constant(0x82)
    const any = fc.oneof(
      fc.constantFrom(0x01, 0x02, 0x80, 0x00, 0x81, 0x88, 0x89, 0x8a),
      fc.integer({ min: 0, max: 255 }),
    )
    const frame = fc.record({
      first: fc.oneof({ weight: 3, arbitrary: plain }, { weight: 2, arbitrary: any }),
      payload: fc.oneof(
        fc.uint8Array({ maxLength: 20 }),
        fc.constantFrom(130, 300).map(size => new Uint8Array(size).fill(65)),
      ),
      isMasked: fc.oneof({ weight: 20, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(frame, { maxLength: 8 }),
        fc.array(fc.nat(2_000), { maxLength: 8 }),
        fc.boolean(),
        async (frames, cuts, isServer) => {
          const bytes = Buffer.concat(
            frames.map(({ first, payload, isMasked }) =>
              encode({ first, payload: Buffer.from(payload), mask: isMasked === isServer ? mask : undefined }),
            ),
          )
          const ours = (await byReader(cut(bytes, cuts), isServer)).events
          const theirs = (await byWs(cut(bytes, cuts), isServer)).events
          expect(ours).toEqual(theirs)
        },
      ),
      { numRuns: 300 },
    )
  })
})
