import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls, createServer, type TLSSocket } from 'node:tls'
import { expect, test } from 'vitest'
import { isBroken, isEndOfReset } from '../../../protocol/base/tcp.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { eventually } from '../../support/until.ts'

/** A TLS connection at `place`, of whose two ends ours reads nothing. */
async function connected(place: string | number) {
  const secrets = await makeSecrets()
  const server = createServer(secrets.server)
  server.listen(place)
  await once(server, 'listening')
  const address = server.address() as AddressInfo | string
  const below = typeof address === 'string' ? connect(address) : connect(address.port, '127.0.0.1')
  const caller = connectTls({ socket: below, ca: secrets.ca, servername: 'localhost' })
  caller.on('error', () => {})
  const [accepted] = (await once(server, 'secureConnection')) as [TLSSocket]
  accepted.pause().on('error', () => {})
  const close = () => {
    for (const socket of [caller, accepted]) socket.destroy()
    server.close()
  }
  return { below, accepted, close }
}

test('E16: a TLS connection is broken once its peer has reset it', async () => {
  const { below, accepted, close } = await connected(0)
  expect(isBroken(accepted)).toBe(false)
  below.resetAndDestroy()
  await eventually(() => expect(isBroken(accepted)).toBe(true))
  close()
})

test('the end of a socket stands for a reset only if there was one, and not behind our own end', async () => {
  const ways = { reset: true, fin: false, ours: false }
  for (const [way, isReset] of Object.entries(ways)) {
    const { below, accepted, close } = await connected(0)
    if (way === 'ours') await new Promise<void>(resolve => accepted.end(resolve))
    if (way === 'fin') below.end()
    else below.resetAndDestroy()
    if (way !== 'fin') await eventually(() => expect(isBroken(accepted)).toBe(true))
    else await new Promise(resolve => setTimeout(resolve, 50))
    expect([way, isEndOfReset(accepted)]).toEqual([way, isReset])
    close()
  }
})

test('a TLS connection at a Unix socket, where the system does not tell, does not count as broken', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-tcp-'))
  const { accepted, close } = await connected(join(folder, 'socket'))
  expect(isBroken(accepted)).toBe(false)
  close()
  await rm(folder, { recursive: true })
})
