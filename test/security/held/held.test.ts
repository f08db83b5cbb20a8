// @module-tag slow
/** B1: what is held counts. Outsiders fill real processes in each way that we know, and the ledgers have to know of it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { HAS_INBOX } from '../../../cli/demo/topology.ts'
import { needs } from '../../support/needs.ts'
import { HTTP1, HTTP2, INBOX, type Shape } from './shapes.ts'
import { type Gain, World } from './world.ts'

/** What a connection costs, with another one to its target. */
const CONNECTION_BYTES = 20 * 1024

let world: World
beforeAll(async () => {
  world = await World.start()
})
afterAll(() => world?.stop())

function expectCounted({ part, held, counted }: Gain, { callers, counts }: Shape): void {
  expect(counted, `what counts at the ${part}`).toBeGreaterThanOrEqual(callers * counts)
  expect(held, `what the ${part} holds`).toBeLessThan(2 * counted + callers * CONNECTION_BYTES)
}

describe('B1 at the router', () => {
  test.each(Object.entries(HTTP1))('over HTTP/1.1: %s', async (_what, shape) => {
    expectCounted(await world.atRouter(shape), shape)
  })
  test.each(Object.entries(HTTP2))('over HTTP/2: %s', async (_what, shape) => {
    expectCounted(await world.atRouter(shape), shape)
  })
})

/** Heads are half as long there, and with TLS, connections take time. */
const fewer = (shape: Shape, share: number): Shape => ({
  ...shape,
  callers: shape.callers * share,
  counts: shape.counts / 2,
})

describe('B1 at the edge', () => {
  test.each(['a head', 'trailers', 'a part of trailers', 'a small body'])('over HTTP/1.1: %s', async what => {
    const shape = fewer(HTTP1[what]!, 1 / 4)
    expectCounted(await world.atEdge(shape, 'http/1.1'), shape)
  })
  test.each(['heads', 'trailers', 'requests without a body', 'answers of the target'])(
    'over HTTP/2: %s',
    async what => {
      const shape = fewer(HTTP2[what]!, 1)
      expectCounted(await world.atEdge(shape, 'h2'), shape)
    },
  )
})

describe('B1 at the edge, for a runtime that is away', () => {
  test('over HTTP/1.1: a head', async () => {
    const shape = fewer(HTTP1['a head']!, 1 / 4)
    expectCounted(await world.atEdge(shape, 'http/1.1', { runtime: 'away' }), shape)
  })
  test('over HTTP/1.1: a small body', async () => {
    const shape = { ...HTTP1['a small body']!, callers: 120 }
    expectCounted(await world.atEdge(shape, 'http/1.1', { runtime: 'away' }), shape)
  })
  test('over HTTP/2: heads', async () => {
    const shape = { ...fewer(HTTP2.heads!, 1), callers: 2 }
    expectCounted(await world.atEdge(shape, 'h2', { runtime: 'away' }), shape)
  })
})

describe.runIf(HAS_INBOX)('B1 in the inbox', () => {
  test.each(Object.entries(INBOX))('%s', async (_what, shape) => {
    expectCounted(await world.atEdge(shape, 'http/1.1', { runtime: 'inbox' }), shape)
  })
})

describe('B1 at the edge, for a client that reads nothing', () => {
  // The kernel takes the first megabytes.
  const rest = (shape: Shape) => ({ ...shape, counts: shape.counts / 8 })
  test('over HTTP/1.1: a large body', async () => {
    const shape = rest(HTTP1['a large body']!)
    expectCounted(await world.beforeDeafClient(shape, 'http/1.1'), shape)
  })
  test('over HTTP/2: bodies', async () => {
    const shape = rest(HTTP2.bodies!)
    expectCounted(await world.beforeDeafClient(shape, 'h2'), shape)
  })
})

describe.runIf(needs('redis'))('B1 at two servers, of callers at the one for a client of the other', () => {
  let pair: World
  beforeAll(async () => {
    pair = await World.startPair()
  })
  afterAll(() => pair?.stop())

  test('at the one: a head over HTTP/1.1', async () => {
    const shape = fewer(HTTP1['a head']!, 1 / 4)
    expectCounted(await pair.atPair(shape, 'http/1.1', 'other'), shape)
  })
  test.each(['other', 'server'] as const)('at the %s: answers of the target over HTTP/2', async where => {
    const shape = fewer(HTTP2['answers of the target']!, 1 / 4)
    expectCounted(await pair.atPair(shape, 'h2', where), shape)
  })
})

describe('B1 at a client, of callers at the edge', () => {
  test.each(['a head', 'trailers'])('over HTTP/1.1: %s', async what => {
    const shape = fewer(HTTP1[what]!, 1 / 4)
    expectCounted(await world.atEdge(shape, 'http/1.1', { where: 'client' }), shape)
  })
  test.each(['heads', 'trailers'])('over HTTP/2: %s', async what => {
    const shape = fewer(HTTP2[what]!, 1)
    expectCounted(await world.atEdge(shape, 'h2', { where: 'client' }), shape)
  })
})
