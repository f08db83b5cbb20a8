/**
 * A replica that cannot reach the directory asks the others for what they know: each tells it once, in slices between
 * other work.
 */
import { once } from 'node:events'
import { connect } from 'node:tls'
import { afterEach, expect, test } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import type { RuntimeState } from '../../../server/directory/directory.ts'
import { parsePeerMessage } from '../../../server/peer/messages.ts'
import { Peers } from '../../../server/peer/peers.ts'
import { PEER_NAME, type PeerTls, peerTlsOptions } from '../../../server/peer/tls.ts'
import { MAX_PEER_MESSAGE_BYTES, PeerTransport } from '../../../server/peer/transport.ts'
import { until } from '../../support/until.ts'
import { makeWorld } from '../fixture.ts'

const LEASE_MS = 60_000
const MANY = 20_000
/** Fewer than are told in one turn. */
const LARGE = 100
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
    find: () => undefined,
    *states() {
      for (let i = 0; i < MANY; i++) {
        perTurn.set(turns, (perTurn.get(turns) ?? 0) + 1)
        yield stateOf(i)
      }
    },
  })
  let heard = 0
  near.listen({ heard: () => void heard++, reached() {}, changed() {}, states: () => [], find: () => undefined })
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

test('a replica that does not read is told no more than it reads, and only for its last question', async () => {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  const far = make('far', tls)
  let given = 0
  far.listen({
    heard() {},
    reached() {},
    changed() {},
    find: () => undefined,
    *states() {
      for (let i = 0; i < LARGE; i++) {
        given++
        yield { ...stateOf(i), runtime: `runtime-${i}-${'x'.repeat(400_000)}` }
      }
    },
  })
  const { port } = await far.bind({ host: '127.0.0.1', port: 0 }, undefined)
  const socket = connect({ ...peerTlsOptions(tls), host: '127.0.0.1', port, servername: PEER_NAME })
  await once(socket, 'secureConnect')
  const named = Promise.withResolvers<void>()
  const told: number[] = []
  let standings = 0
  const session = createSession(new PeerTransport(socket), {
    role: 'client',
    controlBytes: MAX_PEER_MESSAGE_BYTES,
    onControl: text => {
      const message = parsePeerMessage(text)
      if (message?.type === 'replica') named.resolve()
      else if (message?.type === 'told') told.push(message.number)
      else if (message?.type === 'standing') standings++
    },
  })
  await named.promise
  socket.pause()
  for (const number of [1, 2, 3]) session.control({ type: 'ask', number, agoMs: -1 })
  let before = -1
  while (given === 0 || given !== before) {
    before = given
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  expect(given).toBeLessThan(LARGE)
  socket.resume()
  await until(() => told.length > 0)
  expect([told, standings < 2 * LARGE]).toEqual([[3], true])
  session.close('the end')
})
