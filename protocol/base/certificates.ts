/** Certificates in a PEM text: all that stand in it, or none. */
import { X509Certificate } from 'node:crypto'

const BLOCK = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/**
 * Each certificate of the text, as Node writes it. Throws a TypeError if there is none, or one is cut or damaged. OpenSSL would be content
 * with those in front of it, and overlooks one that does not begin on a line of its own.
 */
export function certificatesIn(pem: string | Buffer): string[] {
  const text = String(pem)
  const blocks = text.match(BLOCK) ?? []
  if (blocks.length === 0 && !text.includes('CERTIFICATE-')) throw new TypeError('there is no certificate in it')
  if (text.replace(BLOCK, '').includes('CERTIFICATE-')) throw damaged()
  return blocks.map(block => {
    try {
      return new X509Certificate(block).toString()
    } catch (cause) {
      throw damaged(cause)
    }
  })
}

function damaged(cause?: unknown): TypeError {
  return new TypeError('a certificate in it is cut or damaged', { cause })
}
