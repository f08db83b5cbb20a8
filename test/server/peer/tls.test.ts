/** D3: who is let in as a replica, and which check keeps others out. */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  type CertificateAndKey,
  createAuthority,
  createReplicaCertificate,
  REPLICA_NAME,
} from '../../../certs/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { PeerListener } from '../../../server/peer/listener.ts'
import { PEER_NAME, peerTlsOptions } from '../../../server/peer/tls.ts'
import { PeerTransport } from '../../../server/peer/transport.ts'
import { oddCertificate } from '../../support/odd-certificates.ts'

let authority: CertificateAndKey
let listener: PeerListener
let port: number
const warnings: string[] = []
let reasons: object[] = []

beforeAll(async () => {
  authority = await createAuthority({ name: 'Authority of the replicas' })
})
beforeEach(async () => {
  reasons = []
  listener = new PeerListener({
    tls: tlsOf(await createReplicaCertificate(authority)),
    replica: 'this~1',
    session: {},
    pick: () => undefined,
    states: () => [],
    stateOf: () => undefined,
    onReplica: () => {},
    logger: {
      ...noLogger,
      warn(fields, message) {
        warnings.push(message)
        reasons.push(fields)
      },
    },
  })
  port = (await listener.listen({ port: 0 })).port
  return () => listener.close()
})
afterEach(() => void warnings.splice(0))

const tlsOf = ({ certificate: cert, key }: CertificateAndKey) => ({ cert, key, ca: authority.certificate })

/** A connection as another replica opens it, with a certificate of the test's choice. */
function dial(shown: CertificateAndKey, more: object = {}): TLSSocket {
  const socket = connect({ ...peerTlsOptions(tlsOf(shown)), host: '127.0.0.1', port, servername: PEER_NAME, ...more })
  return socket.on('error', () => {})
}

/** What the listener reports about a connection that it ends. */
async function warning(socket: TLSSocket): Promise<string[]> {
  socket.resume()
  await new Promise(resolve => socket.once('close', resolve))
  return [...warnings]
}

const USAGE = ['clientAuth', 'serverAuth'] as const
const named = (value: string) => ({ usage: USAGE, names: [{ type: 'dns' as const, value }] })
const NO_REPLICA = "refused a connection: its certificate is not a replica's"
const NOT_TRUSTED = 'TLS handshake of another replica failed'

describe('D3 whoever asks for this replica', () => {
  test('D3 a replica is let in', async () => {
    const socket = dial(await createReplicaCertificate(authority))
    await once(socket, 'secureConnect')
    const { promise, resolve } = Promise.withResolvers<string>()
    const session = createSession(new PeerTransport(socket), { role: 'client', onControl: resolve })
    expect(JSON.parse(await promise)).toMatchObject({ type: 'replica', name: 'this~1' })
    session.close('done')
    expect(warnings).toEqual([])
  })

  test.each([
    ['another name of the same authority', named('localhost')],
    ['a name below that of replicas', named(`one.${REPLICA_NAME}`)],
    ['a wildcard above it', named(`*.${REPLICA_NAME}`)],
    ['the name as the common name alone', { usage: USAGE, commonName: REPLICA_NAME, names: named('x').names }],
    ['the name as the common name, and no other', { usage: USAGE, commonName: REPLICA_NAME }],
    ['the name as a URI', { usage: USAGE, names: [{ type: 'url' as const, value: `urn:${REPLICA_NAME}` }] }],
  ])('D3 not with %s', async (_, options) => {
    expect(await warning(dial(await oddCertificate(authority, options)))).toEqual([NO_REPLICA])
  })

  test("D3 not without the replicas' protocol", async () => {
    const socket = dial(await createReplicaCertificate(authority), { ALPNProtocols: [] })
    expect(await warning(socket)).toEqual([NO_REPLICA])
  })

  test.each([
    [
      'a certificate of another authority',
      async () => createReplicaCertificate(await createAuthority({ name: 'Other' })),
    ],
    [
      'a certificate for servers alone',
      () => oddCertificate(authority, { ...named(REPLICA_NAME), usage: 'serverAuth' }),
    ],
    ['one that has ended', () => oddCertificate(authority, { ...named(REPLICA_NAME), from: -3, to: -1 })],
  ])('D3 not with %s', async (_, make) => {
    expect(await warning(dial(await make()))).toEqual([NOT_TRUSTED])
  })

  test('D3 not without a certificate', async () => {
    expect(await warning(dial(await createReplicaCertificate(authority), { cert: undefined, key: undefined }))).toEqual(
      [NOT_TRUSTED],
    )
  })

  test('that is refused again and again: the log says once from where and why', async () => {
    const letIn = async () => {
      const socket = dial(await createReplicaCertificate(authority))
      await once(socket.resume(), 'data')
      socket.destroy()
    }
    const ended = await oddCertificate(authority, { ...named(REPLICA_NAME), from: -3, to: -1 })
    const other = await oddCertificate(authority, named('localhost'))
    for (const shown of [ended, ended, other, other, ended]) await warning(dial(shown))
    const expired = { peer: '127.0.0.1', err: expect.objectContaining({ message: 'CERT_HAS_EXPIRED' }) }
    const noReplica = { peer: '127.0.0.1' }
    expect(reasons).toEqual([expired, noReplica, expired])
    await letIn()
    await warning(dial(ended))
    expect(reasons).toEqual([expired, noReplica, expired, expired])
  })

  test('D3 by a full handshake each time: no session is resumed', async () => {
    const shown = await createReplicaCertificate(authority)
    // A certificate is not checked again when a session is resumed, and this end would resume.
    const willing = { secureOptions: 0 }
    const first = dial(shown, willing)
    const [session] = await once(first, 'session')
    first.destroy()
    const second = dial(shown, { ...willing, session })
    await once(second, 'secureConnect')
    expect(second.isSessionReused()).toBe(false)
    second.destroy()
  })
})
