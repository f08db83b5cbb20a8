/** An exception where none should be costs its own exchange or session; the process and everybody else go on. */
import { afterEach, describe, expect, test } from 'vitest'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, type PairOptions, startPair } from '../support/pair.ts'

let pair: Pair
afterEach(() => pair.stop())

const thrown = () => {
  throw new Error('thrown on purpose')
}

/** Some chunks, then an exception. */
function breaking(): ReadableStream<Uint8Array> {
  let chunks = 0
  return new ReadableStream({
    pull: controller => (chunks++ < 8 ? controller.enqueue(Buffer.alloc(32_768)) : thrown()),
  })
}

async function startWithCaller(options: Partial<PairOptions>): Promise<Http1Caller> {
  pair = await startPair({ target: () => new Response('served'), ...options })
  return Http1Caller.connect(pair.place)
}

async function othersServed(): Promise<void> {
  await pair.connect('other', () => new Response('unhurt'))
  const caller = await Http1Caller.connect(pair.placeOf('other'))
  expect((await caller.ask({ path: '/' })).content.toString()).toBe('unhurt')
  caller.close()
}

describe('an exception costs its own exchange', () => {
  test.each<[string, Partial<PairOptions>, number]>([
    ['a function that throws', { target: thrown }, 502],
    ['a function that rejects', { target: async () => thrown() }, 502],
    ['a function that returns no Response', { target: (() => 42) as never }, 502],
    ['a body that breaks', { target: () => new Response(breaking()) }, 0],
    ['a handler that throws', { target: { handler: thrown } as never }, 502],
    ['a hook of the client that throws', { client: { onExchange: thrown } }, 200],
    ['a hook of the server that throws', { server: { onExchange: thrown } }, 200],
    ['listeners of the client that throw', { client: { on: { connected: thrown, disconnected: thrown } } }, 200],
  ])('%s', async (_name, options, status) => {
    const caller = await startWithCaller(options)
    const answered = await caller.ask({ path: '/' }).then(
      reply => reply.status,
      () => 0,
    )
    expect(answered).toBe(status)
    caller.close()
    await othersServed()
    expect(pair.server.stats().sessionsEnded).toBe(0)
  })

  test('listeners of the server that throw', async () => {
    const caller = await startWithCaller({})
    for (const name of ['session', 'ready', 'sessionEnded', 'refused'] as const) pair.server.on(name, thrown)
    await othersServed()
    expect((await caller.ask({ path: '/' })).status).toBe(200)
    caller.close()
  })
})
