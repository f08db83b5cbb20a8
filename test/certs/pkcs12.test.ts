import { createPrivateKey } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import forge from 'node-forge'
import { beforeAll, expect, test } from 'vitest'
import { type CertificateAndKey, createAuthority, createClientCertificate, exportPkcs12 } from '../../certs/index.ts'

let authority: CertificateAndKey
let client: CertificateAndKey
let store: Uint8Array

beforeAll(async () => {
  authority = await createAuthority()
  client = await createClientCertificate(authority, { runtime: 'demo' })
  store = await exportPkcs12({ ...client, authorities: authority.certificate, password: 'open sesame' })
})

test('OpenSSL opens it with the password and refuses any other', () => {
  expect(() => createSecureContext({ pfx: Buffer.from(store), passphrase: 'open sesame' })).not.toThrow()
  expect(() => createSecureContext({ pfx: Buffer.from(store), passphrase: 'open' })).toThrow(/mac verify/)
})

test('node-forge reads the key, the certificate, the authority and the alias', () => {
  const { pkcs12, pki, asn1 } = forge
  const der = asn1.fromDer(Buffer.from(store).toString('latin1'))
  const read = pkcs12.pkcs12FromAsn1(der, false, 'open sesame')
  const certificates = read.getBags({ bagType: pki.oids.certBag! })[pki.oids.certBag!]!
  expect(certificates).toHaveLength(2)
  const byAlias = read.getBags({ friendlyName: 'demo', bagType: pki.oids.pkcs8ShroudedKeyBag! }).friendlyName!
  const key = createPrivateKey({
    key: Buffer.from(asn1.toDer(byAlias[0]!.asn1).getBytes(), 'latin1'),
    format: 'der',
    type: 'pkcs8',
  })
  expect(key.export({ type: 'pkcs8', format: 'pem' })).toBe(client.key)
})

test('the key is not in it in clear text', () => {
  const plain = createPrivateKey(client.key).export({ type: 'pkcs8', format: 'der' })
  const secret = plain.subarray(36, 68)
  expect(Buffer.from(store).includes(secret)).toBe(false)
})

test('an empty password and a foreign key are refused', async () => {
  await expect(exportPkcs12({ ...client, password: '' })).rejects.toThrow('must not be empty')
  const foreign = { certificate: client.certificate, key: authority.key, password: 'x' }
  await expect(exportPkcs12(foreign)).rejects.toThrow('the key does not match the certificate')
})
