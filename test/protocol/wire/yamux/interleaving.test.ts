import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Transport } from '../../../../protocol/wire/transport.ts'
import { memoryPair } from '../../../../protocol/wire/transport-memory.ts'
import type { ResetCode, Stream, StreamHandler } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import { cutArrivals, FrameReader, pattern } from './support.ts'

/** Small, fast, seeded: the same seed gives the same run. */
function random(seed: number): (below: number) => number {
  let state = seed | 1
  return below => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}

/** One end of a stream: writes its bytes in parts when told, consumes what arrives in parts when told. */
class End implements StreamHandler {
  readonly stream: Stream
  readonly #body: Buffer
  readonly received: Uint8Array[] = []
  #written = 0
  #unconsumed = 0
  ended = false
  resetWith: ResetCode | undefined

  constructor(stream: Stream, body: Buffer) {
    this.stream = stream
    this.#body = body
    stream.handler = this
  }

  data(chunk: Uint8Array): void {
    this.received.push(new Uint8Array(chunk))
    this.#unconsumed += chunk.length
  }

  end(): void {
    this.ended = true
  }

  reset(code: ResetCode): void {
    this.resetWith = code
  }

  consumed(): void {}

  /** Something that a caller might do now. */
  act(next: (below: number) => number): void {
    if (next(3) === 0) return
    if (this.#written < this.#body.length) {
      const part = this.#body.subarray(this.#written, this.#written + 1 + next(next(4) === 0 ? 120_000 : 3_000))
      this.#written += part.length
      this.stream.write(Buffer.from(part))
    } else this.stream.end()
    if (this.#unconsumed > 0 && next(2) === 0) {
      const part = 1 + next(this.#unconsumed)
      this.#unconsumed -= part
      this.stream.consumed(part)
    }
  }
}

/** Follows the frames of both directions and records each byte beyond what the receiver has allowed. */
class WindowJudge {
  readonly violations: string[] = []
  readonly #allowed = new Map<string, number>()
  readonly #initialBytes: number

  constructor(initialBytes: number) {
    this.#initialBytes = initialBytes
  }

  watch(transport: Transport, from: string, to: string): void {
    const reader = new FrameReader()
    const send = transport.bytes.bind(transport)
    transport.bytes = (chunk, sent) => {
      reader.push(new Uint8Array(chunk))
      for (const { type, id, length } of reader.frames.splice(0)) {
        if (type === 0) this.#add(`${from}>${id}`, -length)
        else if (type === 1) this.#add(`${to}>${id}`, length)
      }
      send(chunk, sent)
    }
  }

  #add(key: string, bytes: number): void {
    const left = (this.#allowed.get(key) ?? this.#initialBytes) + bytes
    this.#allowed.set(key, left)
    if (left < 0) this.violations.push(`${key}: ${-left} bytes over`)
  }
}

const scenario = fc.record({
  seed: fc.integer({ min: 1, max: 0x7fff_ffff }),
  windowBytes: fc.integer({ min: 4_096, max: 262_144 }),
  maxWindowBytes: fc.integer({ min: 4_096, max: 1_000_000 }),
  streams: fc.array(fc.record({ up: fc.nat(150_000), down: fc.nat(150_000), byClient: fc.boolean() }), {
    minLength: 1,
    maxLength: 6,
  }),
  cutBytes: fc.integer({ min: 100, max: 70_000 }),
})

describe('two sessions', () => {
  test('random interleavings, windows, cuts and pauses deliver every byte in order, within the windows', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async ({ seed, windowBytes, maxWindowBytes, streams, cutBytes }) => {
        const next = random(seed)
        const [left, right] = memoryPair()
        const ends: [End, Buffer][] = []
        const bodies = new Map<number, { own: Buffer; other: Buffer }>()
        const accept = (stream: Stream): void => {
          const { own, other } = bodies.get(stream.id)!
          ends.push([new End(stream, other), own])
        }
        const options = { initialWindowBytes: windowBytes, maxWindowBytes, onStream: accept }
        const server = createSession(left, { role: 'server', ...options })
        const client = createSession(right, { role: 'client', ...options })
        const judge = new WindowJudge(windowBytes)
        judge.watch(left, 'server', 'client')
        judge.watch(right, 'client', 'server')
        cutArrivals(left, () => 1 + next(cutBytes))
        cutArrivals(right, () => 1 + next(cutBytes))
        for (const { up, down, byClient } of streams) {
          const stream = (byClient ? client : server).open()
          const own = pattern(up, stream.id)
          const other = pattern(down, stream.id + 1)
          bodies.set(stream.id, { own, other })
          ends.push([new End(stream, own), other])
        }
        const done = (): boolean => ends.length === 2 * streams.length && ends.every(([end]) => end.ended)
        for (let turn = 0; !done() && turn < 50_000; turn++) {
          for (const [end] of ends) end.act(next)
          for (const transport of [left, right]) {
            if (next(20) === 0) transport.pause()
            else if (next(3) === 0) transport.resume()
          }
          await new Promise(resolve => setImmediate(resolve))
        }
        expect(judge.violations).toEqual([])
        expect(done()).toBe(true)
        for (const [end, expected] of ends) {
          expect(end.resetWith).toBeUndefined()
          expect(Buffer.concat(end.received).equals(expected)).toBe(true)
        }
        expect([server.streams, client.streams]).toEqual([0, 0])
      }),
      { numRuns: 100 },
    )
  })
})
