/**
 * A replica that cannot reach the directory asks the others for what they know: each tells it once, in slices between
 * other work.
 */
import { afterEach, expect, test } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { RuntimeState } from '../../../server/directory/directory.ts'
import { Peers } from '../../../server/peer/peers.ts'
import type { PeerTls } from '../../../server/peer/tls.ts'
import { until } from '../../support/until.ts'
import { makeWorld } from '../fixture.ts'

const LEASE_MS = 60_000
const MANY = 20_000
/** In one turn. */
const MOST = 1000

const all: Peers[] = []
afterEach(async () => {
  await Promise.all(all.splice(0).map(peers => peers.close()))
})

function make(replica: string, tls: PeerTls): Peers {
  const bytes = { bufferBytes: 1_000_000, bufferBytesPerRuntime: 1_000_000, maxWindowBytes: 1_000_000 }
  const peers = new Peers({ replica, tls, leaseMs: LEASE_MS, logger: noLogger, pick: () => undefined, ...bytes })
  all.push(peers)
  return peers
}

function stateOf(number: number): RuntimeState {
  const instances = new Map([['one', { epoch: 1, replicas: ['far'] }]])
  return { runtime: `runtime-${number}`, epoch: 1, active: 'one', instances, version: number, changedMs: 0 }
}

test('everything that a replica knows is told once, in slices', async () => {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  const [near, far] = [make('near', tls), make('far', tls)]
  let turns = 0
  const counter = setInterval(() => turns++, 0)
  const perTurn = new Map<number, number>()
  far.listen({
    heard() {},
    reached() {},
    changed() {},
    *states() {
      for (let i = 0; i < MANY; i++) {
        perTurn.set(turns, (perTurn.get(turns) ?? 0) + 1)
        yield stateOf(i)
      }
    },
  })
  let heard = 0
  near.listen({ heard: () => void heard++, reached() {}, changed() {}, states: () => [] })
  await far.bind({ host: '127.0.0.1', port: 0 }, undefined)
  await near.bind({ host: '127.0.0.1', port: 0 }, undefined)
  near.watch(true)
  near.confirmed(undefined, [{ name: 'far', leftMs: LEASE_MS, address: far.address }])
  await until(() => near.vouchedUntilMs() > 0)
  const asked = near.vouchedUntilMs()
  await until(() => near.vouchedUntilMs() > asked)
  clearInterval(counter)
  expect([heard, turns > MANY / MOST, perTurn.size > MANY / MOST]).toEqual([MANY, true, true])
})
