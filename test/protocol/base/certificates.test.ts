import { expect, test } from 'vitest'
import { createAuthority } from '../../../certs/index.ts'
import { certificatesIn } from '../../../protocol/base/certificates.ts'

const [one, two] = await Promise.all([createAuthority({ name: 'One' }), createAuthority({ name: 'Two' })])
const [a, b] = [one.certificate, two.certificate]
const both = a + b

test.each([
  ['one behind the other', both],
  ['no line end between them', a.trimEnd() + b],
  ['no line end at the end', both.trimEnd()],
  ['line ends of Windows', both.replaceAll('\n', '\r\n')],
  ['spaces at the ends of lines', both.replaceAll('\n', '  \n')],
  ['a byte order mark', `\ufeff${both}`],
  ['text around them', `# One\n${a}Two: ${b}the end`],
  ['a NUL between them', `${a}\0${b}`],
  ['a key between them', a + one.key + b],
  ['an older name for it', both.replaceAll(' CERTIFICATE', ' X509 CERTIFICATE')],
])('all are found: %s', (_, text) => {
  expect(certificatesIn(text)).toEqual([a, b])
  expect(certificatesIn(Buffer.from(text))).toEqual([a, b])
})

test.each([
  ['the last is cut', both.slice(0, -40)],
  ['the last is cut in its mark', both.slice(0, -3)],
  ['the first is cut', a.slice(0, -40) + b],
  ['a mark is misspelt', a + b.replace('-----BEGIN', '----BEGIN')],
  ['an end is missing', a.replace(/-----END.*/, '') + b],
  ['the contents are damaged', a + b.replace(/MII./, 'AAAA')],
  ['the contents are gone', `${a}-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n`],
  ['lines are indented', both.replace(/^/gm, '  ')],
])('none counts if one is bad: %s', (_, text) => {
  expect(() => certificatesIn(text)).toThrow('a certificate in it is cut or damaged')
})

test.each([
  ['nothing', ''],
  ['a text', 'x'],
  ['a key', one.key],
  ['UTF-16', Buffer.from(both, 'utf16le')],
  ['DER', Buffer.from([0x30, 0x82, 1, 2])],
])('there is none in %s', (_, text) => {
  expect(() => certificatesIn(text)).toThrow('there is no certificate in it')
})
