/** Which other replicas are dialled, and whose word is waited for. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import { formatAddress } from '../../../protocol/base/host-port.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { Peers } from '../../../server/peer/peers.ts'
import type { PeerTls } from '../../../server/peer/tls.ts'
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

async function start(replica: string): Promise<Peers> {
  const bytes = { bufferBytes: 1_000_000, bufferBytesPerRuntime: 1_000_000, maxWindowBytes: 1_000_000 }
  const peers = new Peers({ replica, tls, leaseMs: LEASE_MS, logger: noLogger, pick: () => undefined, ...bytes })
  peers.listen({ heard() {}, reached() {}, changed() {}, states: () => [] })
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
