// @module-tag slow
/** A replica that never had a caller of a runtime, while the directory cannot be asked: it asks the other replicas. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial, type TestClient, token } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { Relay } from '../support/relay.ts'
import { until } from '../support/until.ts'
import { ReplicaGroup, LEASE_MS as SHORT_MS } from './fixture.ts'

/** Hosts of their own do not wait for a replica that a busy machine has kept from vouching in time. */
const LEASE_MS = 2 * SHORT_MS

const RUNTIMES = Array.from({ length: 30 }, (_, i) => `r${i}`)
const hostOf = (runtime: string) => `hooks.${runtime}.example`
const nameOf = (runtime: string) => `${runtime}.${DOMAIN}`

describe.runIf(needs('redis'))('a replica that never had a caller of a runtime', () => {
  let replicas: ReplicaGroup
  let relay: Relay
  let cold: Server
  let holders: Server[]
  let isKilled = false
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(async () => {
    if (isKilled) await restart()
    await replicas.clear()
    await relay.stop()
  })

  /** Each runtime has sessions at one of two replicas. The third reaches Redis through a relay. */
  async function start(runtimes = RUNTIMES): Promise<void> {
    relay = await Relay.start({ port: replicas.redis.port })
    const leaseMs = LEASE_MS
    const directory = { url: replicas.redis.url, leaseMs }
    const options = { ownHosts: true, trustedProxies: ['127.0.0.1'], directory }
    holders = [await replicas.add(options), await replicas.add(options)]
    cold = await replicas.add({ ...options, directory: { url: `redis://127.0.0.1:${relay.port}`, leaseMs } })
    for (const [i, runtime] of runtimes.entries()) await join(holders[i % 2]!, runtime, hostOf(runtime))
    await until(() => holders[0]!.stats().hosts!.held + holders[1]!.stats().hosts!.held === runtimes.length)
    // What changed shortly before Redis was lost is told without a question.
    await new Promise(resolve => setTimeout(resolve, 1000 + LEASE_MS / 2))
  }

  async function kill(): Promise<void> {
    isKilled = true
    await replicas.redis.kill()
  }

  async function restart(): Promise<void> {
    isKilled = false
    await replicas.redis.start()
  }

  async function join(server: Server, runtime: string, host: string): Promise<TestClient> {
    const bearer = await token(runtime, { hosts: [host] })
    return dial(server, { token: bearer, handler: always(runtime), hello: { instance: runtime } })
  }

  async function ask(host: string, address = '192.0.2.1'): Promise<string> {
    const { status, text, headers } = await call(cold, host, '/', { headers: { 'x-forwarded-for': address } })
    return status === 200 ? text : `${status} ${headers['sallyport-error']}`
  }

  async function askAll(what: string, hosts: readonly string[]): Promise<void> {
    const answers = await Promise.all(hosts.map(host => ask(host)))
    const lost = answers.filter((answer, i) => !hosts[i]!.split('.').includes(answer))
    console.log(`${what}: ${hosts.length} requests, lost ${lost.length}`)
    expect(lost).toEqual([])
  }

  test.each<[what: string, fail: () => unknown]>([
    ['Redis is killed', kill],
    ['Redis stands still', () => replicas.redis.pause()],
    [
      'it alone cannot reach Redis',
      () => {
        relay.silent = true
      },
    ],
  ])('serves it at once when %s, on either of its names, also for longer than a lease', async (what, fail) => {
    await start()
    await fail()
    await askAll(`${what}, at once`, [...RUNTIMES.slice(0, 10).map(nameOf), ...RUNTIMES.slice(10, 20).map(hostOf)])
    await until(() => cold.stats().directory.state === 'presumed')
    await askAll(`${what}, later`, [...RUNTIMES.map(hostOf), ...RUNTIMES.map(nameOf)])
  })

  test('loses nothing while Redis is down and comes back empty', async () => {
    await start()
    await kill()
    let isOver = false
    const answers: string[] = []
    const callers = [nameOf, hostOf].map(async hostOfRuntime => {
      for (let i = 0; !isOver || i < RUNTIMES.length; i++) {
        const runtime = RUNTIMES[i % RUNTIMES.length]!
        const answer = await ask(hostOfRuntime(runtime))
        answers.push(answer === runtime ? 'right' : answer)
        await new Promise(resolve => setTimeout(resolve, 5))
      }
    })
    await new Promise(resolve => setTimeout(resolve, LEASE_MS))
    await restart()
    await until(() => replicas.servers.every(server => server.stats().directory.state === 'connected'))
    isOver = true
    await Promise.all(callers)
    console.log(`Redis killed and restarted: ${answers.length} requests`)
    expect([...new Set(answers)]).toEqual(['right'])
  })

  test('leaves a host with its runtime if another one claims it there', async () => {
    await start(['r0'])
    await kill()
    const second = await join(cold, 'second', hostOf('r0'))
    expect(await second.message('notice')).toMatchObject({ code: 'host-taken' })
    expect(await ask(hostOf('r0'))).toBe('r0')
  })

  test('D9: asks the others about a bounded number of made-up names, and still finds those that are served', async () => {
    await start(['r0'])
    await kill()
    const begunMs = performance.now()
    const said = new Map<string, number>()
    for (let i = 0; i < 1000; i += 50) {
      const some = Array.from({ length: 50 }, (_, j) => ask(`made-up-${i + j}.example`, '192.0.2.9'))
      for (const one of await Promise.all(some)) said.set(one, (said.get(one) ?? 0) + 1)
    }
    const seconds = (performance.now() - begunMs) / 1000
    expect([...said.keys()].sort()).toEqual(['429 too-many-requests', '503 runtime-offline'])
    expect(said.get('503 runtime-offline')).toBeLessThanOrEqual(200 + 20 * seconds + 50)
    expect([await ask(hostOf('r0')), await ask(nameOf('r0'))]).toEqual(['r0', 'r0'])
  })
})
