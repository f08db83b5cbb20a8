/** Names that callers make up leave threads for those in the table: a lookup is slow, and 1,000 of them wait. */
import dns from 'node:dns'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { LookupFunction } from 'node:net'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterEach, expect, it, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { RequestSink } from '../../../protocol/exchange.ts'
import { createRouter } from '../../../router/router.ts'
import { capturedNames } from '../../../router/upstream/name-lookups.ts'
import { EXCHANGE, ends } from '../../support/ends.ts'
import { eventually } from '../../support/until.ts'
import { get, RawUpstream } from '../support.ts'

const NAMES = 1_000
const closing: (() => unknown)[] = []
afterEach(async () => {
  vi.restoreAllMocks()
  for (const close of closing.splice(0).reverse()) await close()
})

/** Like libuv: two lookups at a time, in order. `slow` names end when they are released, others at once. */
function twoThreads(slow: RegExp) {
  const waiting: (() => void)[] = []
  const held: (() => void)[] = []
  let free = 2
  const lookups: string[] = []
  const next = () => {
    while (free > 0 && waiting.length > 0) {
      free--
      waiting.shift()!()
    }
  }
  const over = (answer: () => void) => () => {
    free++
    answer()
    next()
  }
  const lookup: LookupFunction = (name, options, answer) => {
    const missing = Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })
    lookups.push(name)
    waiting.push(() => {
      if (slow.test(name)) held.push(over(() => answer(missing, '')))
      else if (options.all) setImmediate(over(() => answer(null, [{ address: '127.0.0.1', family: 4 }])))
      else setImmediate(over(() => answer(null, '127.0.0.1', 4)))
    })
    next()
  }
  vi.spyOn(dns, 'lookup').mockImplementation(lookup as typeof dns.lookup)
  const letGo = () => {
    for (const end of held.splice(0)) end()
  }
  return { lookups, letGo }
}

function hangUp(callers: readonly Socket[]): void {
  for (const caller of callers) caller.destroy()
}

async function serve(upstreamPort: number) {
  const router = createRouter({
    routes: {
      routes: [
        { name: 'static', match: { path: '/static' }, target: `http://static.test:${upstreamPort}` },
        { name: 'absent', match: { path: '/absent' }, target: 'http://absent.test', timeouts: { connectMs: 600_000 } },
        {
          name: 'hooks',
          match: { path: '/hooks/{name}' },
          target: 'http://{name}.hooks.test',
          timeouts: { connectMs: 600_000 },
        },
      ],
    },
  })
  const front = createServer()
  router.attach(front)
  front.listen(0, '127.0.0.1')
  await once(front, 'listening')
  closing.push(
    () => router.close(),
    () => front.close(),
  )
  return { router, port: (front.address() as AddressInfo).port }
}

it.each([
  ['names that callers make up', (i: number) => `/hooks/x${i}`],
  ['a name in the table that does not resolve', () => '/absent'],
])('1,000 requests wait for %s: a static route is still served', async (_, path) => {
  const threads = twoThreads(/hooks|absent/)
  const upstream = await RawUpstream.start(socket => socket.end('HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n'))
  closing.push(() => upstream.stop())
  const { router, port } = await serve(upstream.port)
  const callers: Socket[] = []
  closing.push(() => hangUp(callers))
  for (let i = 0; i < NAMES; i++) {
    const caller = connect(port, '127.0.0.1').on('error', () => {})
    caller.write(`GET ${path(i)} HTTP/1.1\r\nhost: a\r\n\r\n`)
    callers.push(caller)
  }
  await eventually(() => expect(router.stats().upstreams.connections).toBe(NAMES))
  // Each needs its own connection, and so its own name.
  for (let i = 0; i < 3; i++) expect(await get(port, '/static')).toMatch(/^HTTP\/1.1 204 /)
  expect(threads.lookups.filter(name => name === 'static.test')).toHaveLength(3)
  hangUp(callers)
  await eventually(() => expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } }))
  // Abandoned names are not looked up: one lookup was in progress.
  threads.letGo()
  expect(threads.lookups.filter(name => /hooks|absent/.test(name))).toHaveLength(1)
  expect(capturedNames.size).toBe(0)
})

it('beyond the bound a request is refused as overloaded', async () => {
  const threads = twoThreads(/hooks/)
  const { router, port } = await serve(1)
  const callers: Socket[] = []
  closing.push(() => hangUp(callers))
  // One is being looked up, and 1,024 wait.
  for (let i = 0; i < 1_025; i++) {
    const caller = connect(port, '127.0.0.1').on('error', () => {})
    caller.write(`GET /hooks/x${i} HTTP/1.1\r\nhost: a\r\n\r\n`)
    callers.push(caller)
  }
  await eventually(() => expect(router.stats().upstreams.connections).toBe(1_025))
  expect((await get(port, '/hooks/more')).toLowerCase()).toMatch(
    /^http\/1.1 503 [\s\S]*\r\nsallyport-error: overloaded\r\n/,
  )
  hangUp(callers)
  await eventually(() => expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } }))
  threads.letGo()
  expect(capturedNames.size).toBe(0)
})

it.each(['http', 'h2c'])(
  "1,000 names of one caller wait: another caller's name still gets its turn (%s)",
  async protocol => {
    const threads = twoThreads(/hooks/)
    const target = `${protocol}://{name}.hooks.test`
    const router = createRouter({ routes: { routes: [{ name: 'hooks', match: { path: '/{name}' }, target }] } })
    closing.push(() => router.close())
    const waiting = new Map<string, RequestSink>()
    const ask = (name: string, address: string) => {
      const { front, events } = ends()
      const caller = { address, scheme: 'http', host: 'a' } as const
      waiting.set(`${name} ${address}`, router.handler({ ...EXCHANGE, path: `/${name}`, caller }, front))
      return events
    }
    for (let i = 0; i < NAMES; i++) ask(`x${i}`, '192.0.2.1')
    // It knows what the other one will ask for, and was there first.
    ask('wanted', '192.0.2.1')
    const events = ask('wanted', '192.0.2.2')
    for (let i = 0; i < 3; i++) threads.letGo()
    expect(threads.lookups.slice(0, 3)).toEqual(['x0.hooks.test', 'x1.hooks.test', 'wanted.hooks.test'])
    await eventually(() => expect(events).toContain('head 502'))
    for (const sink of waiting.values()) sink.requestAbort(new SallyportError('cancelled'))
    threads.letGo()
    expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } })
    expect(capturedNames.size).toBe(0)
  },
)
