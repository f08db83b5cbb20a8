/** RFC 9180, appendix A.1.1 (DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode), and what must not open. */
import { createPrivateKey } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { AES_128_GCM, newPrivateKey, openWith, publicBytes, sealFor } from '../../../protocol/sealing/hpke.ts'

const hex = (text: string) => Buffer.from(text, 'hex')
/** A private X25519 key from its 32 bytes, with their DER prefix (RFC 8410). */
const privateKeyOf = (bytes: string) =>
  createPrivateKey({ key: hex(`302e020100300506032b656e04220420${bytes}`), format: 'der', type: 'pkcs8' })
const INFO = hex('4f6465206f6e2061204772656369616e2055726e')
const TEXT = hex('4265617574792069732074727574682c20747275746820626561757479')
const EPHEMERAL = privateKeyOf('52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736')
const RECEIVER = privateKeyOf('4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8')
const ENC = hex('37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431')

describe("the RFC's vector", () => {
  const sealer = sealFor(publicBytes(RECEIVER), INFO, EPHEMERAL, AES_128_GCM)
  const opener = openWith(RECEIVER, ENC, INFO, AES_128_GCM)

  test('keys', () => {
    expect(publicBytes(RECEIVER)).toEqual(hex('3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d'))
    expect(Buffer.from(sealer.enc)).toEqual(ENC)
  })

  test.each([
    [0, '436f756e742d30', 'f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a'],
  ])('text %d', (number, aad, sealed) => {
    expect(Buffer.from(sealer.seal(number, hex(aad), TEXT))).toEqual(hex(sealed))
    expect(Buffer.from(opener.open(number, hex(aad), hex(sealed)))).toEqual(TEXT)
  })

  test.each([
    ['', '3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee'],
    ['00', '2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5'],
    ['54657374436f6e74657874', 'e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931'],
  ])('exported for "%s"', (context, exported) => {
    for (const end of [sealer, opener]) expect(Buffer.from(end.export(hex(context)))).toEqual(hex(exported))
  })
})

describe('AES-256-GCM, as we use it', () => {
  const key = newPrivateKey()
  const aad = Buffer.from('aad')
  const sealer = sealFor(publicBytes(key), INFO)
  const sealed = sealer.seal(7, aad, TEXT)

  test('the owner opens it, in any order', () => {
    const opener = openWith(key, sealer.enc, INFO)
    const later = sealer.seal(300, aad, Buffer.alloc(0))
    expect(opener.open(300, aad, later)).toHaveLength(0)
    expect(Buffer.from(opener.open(7, aad, sealed))).toEqual(TEXT)
  })

  const changed = Buffer.from(sealed)
  changed[3]! ^= 1
  test.each([
    ['another key', () => openWith(newPrivateKey(), sealer.enc, INFO).open(7, aad, sealed)],
    ['another purpose', () => openWith(key, sealer.enc, Buffer.from('x')).open(7, aad, sealed)],
    ['another number', () => openWith(key, sealer.enc, INFO).open(8, aad, sealed)],
    ['other data beside it', () => openWith(key, sealer.enc, INFO).open(7, Buffer.from('x'), sealed)],
    ['a changed byte', () => openWith(key, sealer.enc, INFO).open(7, aad, changed)],
    ['a cut text', () => openWith(key, sealer.enc, INFO).open(7, aad, sealed.subarray(0, 20))],
    ['nearly nothing', () => openWith(key, sealer.enc, INFO).open(7, aad, sealed.subarray(0, 9))],
  ])('%s does not open it', (_what, open) => {
    expect(open).toThrow()
  })

  test('nothing is sealed for a key of small order', () => {
    expect(() => sealFor(Buffer.alloc(32), INFO)).toThrow()
  })
})
