/** What senders may take of the inbox that all runtimes share: no network, and no runtime, takes it from the others. */
import { type ClientRequest, request } from 'node:http'
import { afterEach, describe, expect, test } from 'vitest'
import { BodyBudget, KeptBody } from '../../../server/inbox/kept-body.ts'
import { until } from '../../support/until.ts'
import { call, DOMAIN, dial, leave, token } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

const MIB = 1024 * 1024
const STRANGER = '192.0.2.1'
const SENDER = '198.51.100.1'

describe('the memory for bodies', () => {
  /** Takes as much as it gets, in small steps, and returns how much that is. */
  function fill(budget: BodyBudget, runtime: string, address: string): number {
    const request = { runtime, caller: { address, scheme: 'https', host: `${runtime}.${DOMAIN}` } } as const
    const body = new KeptBody(budget, { request, part: async () => {}, kept() {}, failed() {} })
    let bytes = 0
    for (; !body.isFull; bytes += 1024) body.hold(bytes + 1024)
    return bytes / MIB
  }
  const names = (count: number) => Array.from({ length: count }, (_, i) => `runtime-${i}`)
  const addresses = (count: number) => Array.from({ length: count }, (_, i) => `203.0.113.${i}`)

  test('one network takes at most a third at one runtime, and two thirds at however many', () => {
    expect(fill(new BodyBudget(60 * MIB), 'demo', STRANGER)).toBeCloseTo(20, 1)
    const budget = new BodyBudget(60 * MIB)
    for (let round = 0; round < 5; round++) for (const name of names(100)) fill(budget, name, STRANGER)
    expect(budget.used / MIB).toBeLessThanOrEqual(40.1)
    expect(fill(budget, 'demo', SENDER)).toBeCloseTo(6.7, 0)
  })

  test('the networks of one runtime take at most half', () => {
    const budget = new BodyBudget(60 * MIB)
    for (const address of addresses(250)) fill(budget, 'demo', address)
    expect(budget.used / MIB).toBeLessThanOrEqual(30.1)
    expect(fill(budget, 'other', SENDER)).toBeCloseTo(10, 0)
  })

  test.each([
    ['a stranger', true, 1.4],
    ['a known sender', false, 3.2],
  ])('%s that sends to slow receivers of ten runtimes can send to another one', (_, limitsNetworks, least) => {
    const budget = new BodyBudget(60 * MIB, limitsNetworks)
    // As they come to hold it at the same time.
    const bodies = names(10).map(runtime => {
      const caller = { address: SENDER, scheme: 'https', host: `${runtime}.${DOMAIN}` } as const
      return new KeptBody(budget, { request: { runtime, caller }, part: async () => {}, kept() {}, failed() {} })
    })
    for (let bytes = 1024; !bodies.every(({ isFull }) => isFull); bytes += 1024) {
      for (const body of bodies) if (!body.isFull) body.hold(bytes)
    }
    expect(fill(budget, 'demo', SENDER)).toBeGreaterThan(least)
  })
})

describe('at a server', () => {
  let ground: Ground
  afterEach(() => ground.close())

  const runtimes = (count: number) => Array.from({ length: count }, (_, i) => `runtime-${i}`)

  /** A server that knows the rules of all these, whose clients have left. */
  async function startOffline(names: string[], inbox: Parameters<typeof makeGround>[0]): Promise<void> {
    ground = await makeGround(inbox, { trustedProxies: ['127.0.0.0/8'] })
    for (const name of names) {
      await leave(ground.server, await dial(ground.server, { token: await token(name), hello: { inbox: [RULE] } }))
    }
  }

  const optionsOf = (address: string) => ({ method: 'POST', headers: { 'x-forwarded-for': address } })

  async function post(runtime: string, address: string, body: string | Buffer): Promise<number> {
    const options = { ...optionsOf(address), body }
    return (await call(ground.server, `${runtime}.${DOMAIN}`, '/webhooks/a', options)).status
  }

  /** Sends this much of a webhook, and no end. */
  function begin(runtime: string, address: string, bytes: number): ClientRequest {
    const { host, port } = ground.server.publicAddress!
    const { method, headers } = optionsOf(address)
    const fields = { ...headers, host: `${runtime}.${DOMAIN}`, 'content-length': String(bytes + 1) }
    const sender = request({ host, port, method, path: '/webhooks/a', headers: fields }, response => response.resume())
    sender.on('error', () => {}).write(Buffer.alloc(bytes))
    return sender
  }

  test('the rate of unverified webhooks that a network has used up at one runtime is untouched at another', async () => {
    await startOffline(['one', 'other'], { messagesPerRuntime: 10, unverifiedPerMinute: 2 })
    const statuses = { one: [] as number[], other: [] as number[] }
    for (const runtime of ['one', 'other'] as const) {
      for (let i = 0; i < 8; i++) statuses[runtime].push(await post(runtime, SENDER, `hook ${i}`))
    }
    const stored = [...Array(7).fill(202), 503]
    expect(statuses).toEqual({ one: stored, other: stored })
  })

  test("a network whose webhooks are under way at ten runtimes leaves room for another's", async () => {
    const names = runtimes(10)
    await startOffline([...names, 'demo'], { bufferBytes: 4 * MIB })
    const slow = names.flatMap(name => Array.from({ length: 9 }, () => begin(name, STRANGER, 40_000)))
    await until(() => {
      const { bufferBytes, refused } = ground.server.stats().inbox!
      return bufferBytes + 40_000 * refused['inbox-full']! === 40_000 * slow.length
    })
    expect(await post('demo', SENDER, Buffer.alloc(400_000))).toBe(202)
    for (const sender of slow) sender.destroy()
  })

  test("a network whose webhooks have filled half of all that is stored leaves the rest to others'", async () => {
    const names = runtimes(20)
    await startOffline([...names, 'demo'], { bytes: 8 * MIB, bytesPerRuntime: MIB, unverifiedPerMinute: 600 })
    for (const name of names) while ((await post(name, STRANGER, Buffer.alloc(100_000))) === 202);
    for (let i = 0; i < 4; i++) expect(await post('demo', SENDER, Buffer.alloc(40_000))).toBe(202)
  })
})
