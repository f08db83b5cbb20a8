/** Which other replicas are dialled, and whose word is waited for. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import { formatAddress } from '../../../protocol/base/host-port.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import type { RuntimeState } from '../../../server/directory/directory.ts'
import { Peers } from '../../../server/peer/peers.ts'
import { type PeerTls, peerTlsOptions } from '../../../server/peer/tls.ts'
import { PeerTransport } from '../../../server/peer/transport.ts'
import { until } from '../../support/until.ts'
import { makeWorld } from '../fixture.ts'

const LEASE_MS = 60_000

let tls: PeerTls
beforeAll(async () => {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
})

const closing: (() => unknown)[] = []
afterEach(async () => {
  await Promise.all(closing.splice(0).map(close => close()))
})

async function start(replica: string, now?: () => number): Promise<Peers> {
  const bytes = { bufferBytes: 1_000_000, bufferBytesPerRuntime: 1_000_000, maxWindowBytes: 1_000_000 }
  const peers = new Peers({ replica, tls, leaseMs: LEASE_MS, logger: noLogger, now, pick: () => undefined, ...bytes })
  peers.listen({ heard() {}, reached() {}, changed() {}, states: () => [], find: () => undefined })
  await peers.bind({ host: '127.0.0.1', port: 0 }, undefined)
  closing.push(() => peers.close())
  return peers
}

/** An address where somebody listens silently, and how often it was dialled. */
async function silent(): Promise<{ address: string; calls: () => number }> {
  let calls = 0
  const server = createServer(socket => {
    calls++
    socket.on('error', () => {}).destroy()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(() => server.close())
  const { port } = server.address() as { port: number }
  return { address: formatAddress({ host: '127.0.0.1', port }), calls: () => calls }
}

describe('a replica whose lease ended', () => {
  test('is dialled; once it answers it is a witness like any other, and it dials back', async () => {
    const [near, far] = [await start('near'), await start('far')]
    near.confirmed(0, [{ name: 'far', leftMs: -1, address: far.address }])
    expect(near.vouchedUntilMs()).toBe(Number.POSITIVE_INFINITY)
    await until(() => [near, far].every(peers => peers.stats().connected === 1))
    expect([near, far].map(peers => peers.stats().known)).toEqual([1, 1])
    expect(near.vouchedUntilMs()).toBe(Number.NEGATIVE_INFINITY)
    near.watch(true)
    await until(() => near.vouchedUntilMs() > 0)
  })

  test('and that does not answer is waited for by nobody until it is alive again', async () => {
    const [near, far] = [await start('near'), await silent()]
    const renew = (leftMs: number) => near.confirmed(0, [{ name: 'far', leftMs, address: far.address }])
    renew(-1)
    await until(() => far.calls() === 1)
    renew(-1)
    expect([near.stats().known, near.vouchedUntilMs()]).toEqual([0, Number.POSITIVE_INFINITY])
    // Dialled at once, though it would be dialled rarely.
    renew(LEASE_MS)
    await until(() => far.calls() === 2)
    expect([near.stats().known, near.vouchedUntilMs()]).toEqual([1, Number.NEGATIVE_INFINITY])
  })

  test('is not dialled if another one is there by now, nor are more than a few of them', async () => {
    const [near, far] = [await start('near'), await silent()]
    const dead = (count: number, address: string) =>
      Array.from({ length: count }, (_, i) => ({ name: `dead-${i}`, leftMs: -1 - i, address }))
    near.confirmed(0, [...dead(100, far.address), { name: 'far', leftMs: LEASE_MS, address: far.address }])
    await until(() => far.calls() > 1)
    expect(far.calls()).toBeLessThan(16)
    const other = await silent()
    near.confirmed(0, dead(100, other.address))
    await until(() => other.calls() >= 16)
    expect([near.stats().known, other.calls() < 100]).toEqual([1, true])
  })
})

test('one that has no room gets another exchange when one of its own is over, without waiting for the cooldown', async () => {
  // No cooldown ends.
  const [near, far] = [await start('near', () => 0), await start('far')]
  near.confirmed(0, [{ name: 'far', leftMs: LEASE_MS, address: far.address }])
  await until(() => near.stats().connected === 1)
  const room: string[] = []
  near.onRoom = runtime => room.push(runtime)
  const instances = new Map([['one', { epoch: 1, replicas: ['far'] }]])
  const state: RuntimeState = { runtime: 'demo', epoch: 1, active: 'one', version: 1, instances, changedMs: 0 }
  const pick = () => near.pick(state, 'one', undefined)
  const open = () => {
    const hop = pick()!
    hop.open()
    hop.exchanges++
    return hop
  }
  const [first, second, third] = [open(), open(), open()]
  third.released()
  third.refused()
  first.released()
  await Promise.resolve()
  expect([pick(), room]).toEqual([undefined, []])
  second.released()
  await Promise.resolve()
  expect([pick() !== undefined, room]).toEqual([true, ['demo']])
  open()
  expect(pick()).toBe(undefined)
})

test("a replica at a predecessor's address keeps no connection to itself", async () => {
  const near = await start('near')
  let calls = 0
  near.setTls({
    ...tls,
    get cert() {
      calls++
      return tls.cert
    },
  })
  const began = calls
  near.confirmed(0, [{ name: 'before', leftMs: LEASE_MS, address: near.address }])
  // Again, because the answer carried another name: its own.
  await until(() => calls >= began + 2)
  expect(near.stats()).toMatchObject({ connected: 0, known: 1 })
})

describe('a replica that is asked about a runtime', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  const stateOf = (runtime: string): RuntimeState => ({
    ...{ runtime, epoch: 3, active: 'one', version: 1, changedMs: 0 },
    instances: new Map([['one', { epoch: 3, replicas: ['far'] }]]),
  })

  /** A replica, and what it hears as answers. */
  async function startNear(...others: readonly { name: string; address: string }[]) {
    const near = await start('near')
    const heard: string[] = []
    near.listen({
      heard: ({ runtime, epoch, active }, teller, isAnswer) =>
        void heard.push(`${runtime}: ${active} ${epoch} ${teller} ${isAnswer}`),
      ...{ reached() {}, changed() {}, states: () => [], find: () => undefined },
    })
    near.confirmed(
      0,
      others.map(other => ({ ...other, leftMs: LEASE_MS })),
    )
    await until(() => near.stats().connected === others.length)
    return { near, heard }
  }

  /** A replica that says its name, and then handles messages in its own way. */
  async function stub(
    onMessage: (text: string, socket: TLSSocket) => void,
  ): Promise<{ name: string; address: string }> {
    const server = createTlsServer({ ...peerTlsOptions(tls), rejectUnauthorized: true }, socket => {
      const session = createSession(new PeerTransport(socket), {
        role: 'server',
        onControl: text => onMessage(text, socket),
      })
      session.control({ type: 'replica', name: 'stub', address: '' })
      closing.push(() => socket.destroy())
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => server.close())
    const { port } = server.address() as { port: number }
    return { name: 'stub', address: formatAddress({ host: '127.0.0.1', port }) }
  }

  test('tells what it may act on, and nothing else', async () => {
    const far = await start('far')
    const known: Record<string, RuntimeState | 'unknown'> = { demo: stateOf('demo'), doubtful: 'unknown' }
    far.listen({ heard() {}, reached() {}, changed() {}, states: () => [], find: runtime => known[runtime] })
    const { near, heard } = await startNear({ name: 'far', address: far.address })
    await Promise.all(['demo', 'doubtful', 'nobody'].map(runtime => near.askAbout(runtime)))
    expect(heard).toEqual(['demo: one 3 far true'])
  })

  test('and is older, and does not know the question, is not waited for long', async () => {
    const messages: unknown[] = []
    const old = await stub(text => void messages.push(JSON.parse(text)))
    const { near, heard } = await startNear(old)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    let isAnswered = false
    const answers = near.askAbout('demo').then(() => {
      isAnswered = true
    })
    await until(() => messages.length === 2)
    expect([messages[1], isAnswered]).toEqual([{ type: 'about', runtime: 'demo' }, false])
    await vi.advanceTimersByTimeAsync(1000)
    await answers
    expect([heard, near.stats().connected]).toEqual([[], 1])
  })

  test('and disappears is not waited for', async () => {
    const dying = await stub((text, socket) => {
      if (text.includes('about')) socket.destroy()
    })
    const { near } = await startNear(dying)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    await near.askAbout('demo')
    expect(near.stats().connected).toBe(0)
  })

  test('is nobody, if none is connected', async () => {
    const { near } = await startNear()
    expect(near.canAsk).toBe(false)
  })
})
