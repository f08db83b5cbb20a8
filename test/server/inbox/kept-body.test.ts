/** A webhook's body that arrives in small pieces takes little more memory than the bytes that are counted for it. */
import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { BodyBudget, KeptBody } from '../../../server/inbox/kept-body.ts'
import { END_HEADERS, END_STREAM, field, frame, PREFACE, TYPE } from '../../support/http2-frames.ts'
import { until } from '../../support/until.ts'
import { HOST, leave } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

afterEach(() => vi.restoreAllMocks())

/** The buffers that are allocated for kept bytes. */
function watchBuffers(): Buffer[] {
  const buffers: Buffer[] = []
  const allocate = Buffer.allocUnsafeSlow
  vi.spyOn(Buffer, 'allocUnsafeSlow').mockImplementation(size => {
    const buffer = allocate(size)
    buffers.push(buffer)
    return buffer
  })
  return buffers
}

function keep(budget = new BodyBudget(1e9)): { body: KeptBody; stored: Uint8Array[] } {
  const stored: Uint8Array[] = []
  const caller = { address: '192.0.2.1', scheme: 'https', host: HOST } as const
  const body = new KeptBody(budget, {
    request: { runtime: 'demo', caller },
    part: async (_, bytes) => stored.push(bytes),
    kept() {},
    failed(error) {
      throw error
    },
  })
  return { body, stored }
}

/** Bytes of a read buffer that others use as well. */
const slabOf = (bytes: number) => Buffer.from(Array.from({ length: bytes }, (_, i) => i % 251))

describe.each([1, 7, 1023])('pieces of %i bytes', piece => {
  const slab = slabOf(300_000)

  test.each(['before', 'after'])('that arrive %s the body is owned are kept in a few buffers', when => {
    const budget = new BodyBudget(1e9)
    const { body } = keep(budget)
    const buffers = watchBuffers()
    if (when === 'after') body.own()
    for (let at = 0; at < slab.length; at += piece) body.add(slab.subarray(at, at + piece))
    if (when === 'before') body.own()
    expect(budget.used).toBe(slab.length)
    expect(buffers.length).toBeLessThanOrEqual(slab.length / 2048)
    expect(buffers.reduce((sum, { length }) => sum + length, 0)).toBeLessThanOrEqual(2 * slab.length)
    const { rest, digest, parts } = body.finish()
    expect(slab.equals(rest)).toBe(true)
    expect(digest).toEqual(createHash('sha256').update(slab).digest())
    expect(parts).toBe(1)
    body.drop()
    expect(budget.used).toBe(0)
  })
})

test('many small pieces leave their read buffers at once', () => {
  const { body } = keep()
  const slab = slabOf(10_000)
  const sent = Buffer.from(slab)
  for (let at = 0; at < slab.length; at++) body.add(slab.subarray(at, at + 1))
  slab.fill(0)
  expect(sent.equals(body.finish().rest)).toBe(true)
})

test('a body in ordinary chunks is not copied, and one in a single chunk not even when it is owned', () => {
  const buffers = watchBuffers()
  const { body } = keep()
  const slab = slabOf(65_536)
  for (let i = 0; i < 500; i++) body.add(slab.subarray(i, i + 1024))
  expect(buffers).toEqual([])
  const whole = Buffer.alloc(40_000)
  const { body: single } = keep()
  single.add(whole)
  single.own()
  expect(buffers).toEqual([])
  expect(single.finish().rest).toBe(whole)
})

test('small and large pieces keep their order across parts', async () => {
  const { body, stored } = keep()
  body.own()
  const sent: Buffer[] = []
  for (let i = 0; i < 300; i++) {
    for (const bytes of [1, 5000, 3]) sent.push(Buffer.alloc(bytes, i))
    for (const piece of sent.slice(-3)) body.add(piece)
  }
  const { rest } = body.finish()
  expect(stored.length).toBe(2)
  expect(Buffer.concat([...stored, rest]).equals(Buffer.concat(sent))).toBe(true)
})

test('a body that comes in one piece is stored in parts of the usual size', async () => {
  const { body, stored } = keep()
  const whole = slabOf(2_000_000)
  body.add(whole)
  const { rest, parts } = body.finish()
  expect(stored.map(({ length }) => length)).toEqual([524_288, 524_288, 524_288])
  expect(Buffer.concat([...stored, rest]).equals(whole)).toBe(true)
  expect(parts).toBe(4)
})

describe('a webhook over HTTP/2', () => {
  let ground: Ground
  afterEach(() => ground.close())

  test('in DATA frames of one byte is kept in a few buffers', async () => {
    ground = await makeGround()
    await leave(ground.server, await ground.connect([{ ...RULE, mode: 'always' }]))
    const body = slabOf(3000)
    const fields = { ':method': 'POST', ':scheme': 'http', ':path': '/webhooks/a', ':authority': HOST }
    const head = Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)))
    const pieces = Array.from(body, byte => frame(TYPE.data, 0, 1, Buffer.of(byte)))
    const buffers = watchBuffers()
    const socket = connect(ground.server.publicAddress!.port, '127.0.0.1')
    socket.resume()
    try {
      socket.write(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.headers, END_HEADERS, 1, head)]))
      socket.write(Buffer.concat([...pieces, frame(TYPE.data, END_STREAM, 1)]))
      await until(async () => (await ground.messages()).length === 1)
    } finally {
      socket.destroy()
    }
    expect(buffers.length).toBeLessThanOrEqual(30)
    const [message] = await ground.messages()
    const stored = await ground.server.inbox!.read(message!.id)
    expect(body.equals(stored!.body)).toBe(true)
  })
})
