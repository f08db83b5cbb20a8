/** A replica that asks and does not read what it is answered. */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createAuthority, createReplicaCertificate } from '../../../certs/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { PeerListener } from '../../../server/peer/listener.ts'
import { PEER_NAME, peerTlsOptions } from '../../../server/peer/tls.ts'
import { until } from '../../support/until.ts'

let listener: PeerListener
let socket: TLSSocket
beforeEach(async () => {
  const authority = await createAuthority({ name: 'Authority of the replicas' })
  const { certificate: cert, key } = await createReplicaCertificate(authority)
  const tls = { cert, key, ca: authority.certificate }
  listener = new PeerListener({
    tls,
    replica: 'this~1',
    session: {},
    pick: () => undefined,
    states: () => Array(1000).fill('s'.repeat(10_000)),
    stateOf: () => 's'.repeat(1000),
    onReplica: () => {},
    logger: noLogger,
  })
  const { port } = await listener.listen({ port: 0 })
  socket = connect({ ...peerTlsOptions(tls), host: '127.0.0.1', port, servername: PEER_NAME })
  socket.on('error', () => {})
  await once(socket, 'secureConnect')
})
afterEach(async () => {
  socket.destroy()
  await listener.close()
})

function say(message: object): void {
  const text = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(4)
  head.writeUInt32BE((1 << 24) + text.length)
  socket.write(Buffer.concat([head, text]))
}

test.each([
  ['about runtimes', { type: 'about', runtime: 'demo' }, 60_000],
  ['for everything that has changed', { type: 'ask', number: 1, agoMs: -1 }, 100],
])('loses its connection, if it asks %s without end', async (_, question, count) => {
  socket.pause()
  for (let i = 0; i < count; i++) say(question)
  const isEnded = () => {
    say(question)
    return socket.destroyed
  }
  await until(isEnded)
})

test('is answered, if it reads', async () => {
  let bytes = 0
  socket.on('data', chunk => {
    bytes += chunk.length
  })
  for (let i = 0; i < 5000; i++) say({ type: 'about', runtime: 'demo' })
  await until(() => bytes > 5_000_000)
  expect(socket.destroyed).toBe(false)
})
