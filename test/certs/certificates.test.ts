import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { type ConnectionOptions, connect, createServer, type TLSSocket } from 'node:tls'
import forge from 'node-forge'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type CertificateAndKey,
  createAuthority,
  createClientCertificate,
  createServerCertificate,
  inspectCertificates,
} from '../../certs/index.ts'

const DAY_MS = 86_400_000
let authority: CertificateAndKey
let server: CertificateAndKey
let client: CertificateAndKey

beforeAll(async () => {
  authority = await createAuthority()
  server = await createServerCertificate(authority, {
    hosts: ['*.tunnels.localhost', 'localhost', '127.0.0.1', '[::1]'],
  })
  client = await createClientCertificate(authority, { runtime: 'demo' })
})

describe('chain', () => {
  test('both leaves are signed by the authority, whose own signature is valid', () => {
    const ca = new X509Certificate(authority.certificate)
    expect(ca.verify(ca.publicKey)).toBe(true)
    for (const leaf of [server, client]) {
      const certificate = new X509Certificate(leaf.certificate)
      expect(certificate.checkIssued(ca)).toBe(true)
      expect(certificate.verify(ca.publicKey)).toBe(true)
    }
  })

  test('C1: authority flag, usages and key of each', () => {
    const [ca, forServer, forClient] = inspectCertificates(
      authority.certificate + server.certificate + client.certificate,
    )
    expect(ca).toMatchObject({ authority: true, usages: [], key: 'ec prime256v1' })
    expect(forServer).toMatchObject({ authority: false, usages: ['serverAuth'], key: 'ec prime256v1' })
    expect(forClient).toMatchObject({ authority: false, usages: ['clientAuth'], key: 'ec prime256v1' })
  })

  test('C1: an independent parser sees the critical flags and the path length', () => {
    expect(extensions(authority.certificate)).toMatchObject({
      basicConstraints: { critical: true, hex: '30060101ff020100' },
      keyUsage: { critical: true, hex: '03020106' },
    })
    expect(extensions(server.certificate)).toMatchObject({
      basicConstraints: { critical: true, hex: '3000' },
      keyUsage: { critical: true, hex: '03020780' },
      extKeyUsage: { critical: false },
    })
  })

  test('C1: validity begins a little in the past and never outlasts the authority', async () => {
    const now = Date.UTC(2026, 0, 1)
    const short = await createAuthority({ validDays: 10, now })
    const leaf = await createServerCertificate(short, { hosts: ['a.example'], validDays: 397, now: now + DAY_MS })
    const [report] = inspectCertificates(leaf.certificate)
    expect(report!.validFrom.getTime()).toBe(now + DAY_MS - 300_000)
    expect(report!.validTo.getTime()).toBe(now + 10 * DAY_MS)
  })

  test('an expired authority signs nothing', async () => {
    const ended = await createAuthority({ validDays: 1, now: Date.now() - 2 * DAY_MS })
    await expect(createServerCertificate(ended, { hosts: ['a.example'] })).rejects.toThrow('the authority expired at')
  })

  test('a leaf is not an authority, and a foreign key does not sign', async () => {
    await expect(createServerCertificate(server, { hosts: ['a.example'] })).rejects.toThrow('is not an authority')
    const mixed = { certificate: authority.certificate, key: server.key }
    await expect(createServerCertificate(mixed, { hosts: ['a.example'] })).rejects.toThrow('does not match')
  })

  test('of several authorities, the one that matches the key signs', async () => {
    const next = await createAuthority()
    for (const certificate of [authority.certificate + next.certificate, next.certificate + authority.certificate]) {
      const leaf = await createServerCertificate({ certificate, key: next.key }, { hosts: ['a.example'] })
      const made = new X509Certificate(leaf.certificate)
      const issued = (by: string) => made.verify(new X509Certificate(by).publicKey)
      expect([issued(next.certificate), issued(authority.certificate)]).toEqual([true, false])
    }
  })
})

test('creating certificates leaves no polyfill in the globals', () => {
  expect(Object.keys(Reflect).filter(name => name.includes('etadata'))).toEqual([])
})

describe('names', () => {
  test('C2: DNS names, wildcards and addresses are subject alternative names', () => {
    const certificate = new X509Certificate(server.certificate)
    expect(certificate.checkHost('demo.tunnels.localhost')).toBe('*.tunnels.localhost')
    expect(certificate.checkHost('a.b.tunnels.localhost')).toBeUndefined()
    expect(certificate.checkIP('127.0.0.1')).toBe('127.0.0.1')
    expect(certificate.checkIP('::1')).toBe('::1')
    expect(certificate.checkIP('127.0.0.2')).toBeUndefined()
  })

  test('C2: a client certificate names exactly its runtime', () => {
    const [report] = inspectCertificates(client.certificate)
    expect(report!.names).toEqual(['URI:urn:sallyport:runtime:demo'])
    expect(report!.runtime).toBe('demo')
  })

  test.each([
    ['*.localhost', 'refuse a wildcard directly under a top-level domain'],
    ['*', 'is not a host name'],
    ['a.*.example', 'is not a host name'],
    ['a b.example', 'is not a host name'],
    ['a.com\nevil', 'is not a host name'],
    ['a\t.com', 'is not a host name'],
    ['a%2eb.example', 'is not a host name'],
    ['a\u00adb.example', 'is not a host name'],
    ['a\u200bb.example', 'is not a host name'],
    ['300.1.1.1', 'is not a host name'],
    ['', 'is not a host name'],
  ])('host %j is refused', async (host, message) => {
    await expect(createServerCertificate(authority, { hosts: [host] })).rejects.toThrow(message)
  })

  test.each(['De', 'a_b', '-a', 'a-', '', 'a.b', 'x'.repeat(64)])('runtime %j is refused', async runtime => {
    await expect(createClientCertificate(authority, { runtime })).rejects.toThrow('is not a DNS label')
  })
})

describe('a real handshake', () => {
  const sockets: TLSSocket[] = []
  const open = async (options: ConnectionOptions): Promise<TLSSocket> => {
    const socket = connect(options)
    sockets.push(socket)
    await once(socket, 'secureConnect')
    return socket
  }
  const listener = () =>
    createServer({ cert: server.certificate, key: server.key, ca: authority.certificate, requestCert: true })
  let tls: ReturnType<typeof listener>
  let port: number

  beforeAll(async () => {
    tls = listener().listen(0, '127.0.0.1')
    await once(tls, 'listening')
    port = (tls.address() as AddressInfo).port
  })

  afterAll(() => {
    for (const socket of sockets) socket.destroy()
    tls.close()
  })

  test('the client trusts the server by the authority alone, and the server trusts the client', async () => {
    const arrived = once(tls, 'secureConnection')
    await open({
      host: '127.0.0.1',
      port,
      servername: 'demo.tunnels.localhost',
      ca: authority.certificate,
      cert: client.certificate,
      key: client.key,
    })
    const [socket] = (await arrived) as [TLSSocket]
    expect(socket.authorized).toBe(true)
    expect(socket.getPeerCertificate().subjectaltname).toBe('URI:urn:sallyport:runtime:demo')
    socket.destroy()
  })

  test('C1: a client certificate does not work as a server certificate', async () => {
    const wrong = createServer({ cert: client.certificate, key: client.key }).listen(0, '127.0.0.1')
    await once(wrong, 'listening')
    const { port: wrongPort } = wrong.address() as AddressInfo
    const options = {
      host: '127.0.0.1',
      port: wrongPort,
      ca: authority.certificate,
      checkServerIdentity: () => undefined,
    }
    await expect(open(options)).rejects.toMatchObject({ code: 'INVALID_PURPOSE' })
    wrong.close()
  })
})

/** Extensions by name, as node-forge's DER parser sees them. */
function extensions(pem: string): Record<string, { critical: boolean; hex: string }> {
  const { asn1, pki, util } = forge
  const der = forge.pem.decode(pem)[0]!.body
  const certificate = asn1.fromDer(der) as forge.asn1.Asn1 & { value: forge.asn1.Asn1[] }
  const fields = certificate.value[0]!.value as forge.asn1.Asn1[]
  const list = fields.find(
    field => (field.tagClass as number) === asn1.Class.CONTEXT_SPECIFIC && (field.type as number) === 3,
  )!
  const rows = (list.value[0] as forge.asn1.Asn1).value as forge.asn1.Asn1[]
  const names = pki.oids as Record<string, string>
  return Object.fromEntries(
    rows.map(row => {
      const parts = row.value as forge.asn1.Asn1[]
      const oid = asn1.derToOid(parts[0]!.value as string)
      const value = parts.at(-1)! as forge.asn1.Asn1 & { value: unknown }
      const bytes =
        typeof value.value === 'string' ? value.value : asn1.toDer((value.value as forge.asn1.Asn1[])[0]!).getBytes()
      return [names[oid] ?? oid, { critical: parts.length === 3, hex: util.bytesToHex(bytes) }]
    }),
  )
}
