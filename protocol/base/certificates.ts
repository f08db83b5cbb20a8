/** Reads all certificates of a PEM text, or fails. */
import { X509Certificate } from 'node:crypto'

const BLOCK = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/**
 * Every certificate of the text, in the form that Node writes. Throws TypeError if there is none, or one is cut or damaged.
 * OpenSSL would silently use only those before it, and overlooks one that does not begin on a new line.
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

/** Throws a TypeError that names the option without any certificate in it: no authority would mean all those of the system. */
export function checkAuthorities(name: string, given: Authorities): void {
  if (given === undefined) return
  try {
    const all = [given].flat().flatMap(certificatesIn)
    if (all.length > 0) return
  } catch (cause) {
    throw new TypeError(`${name} has no readable certificate (PEM)`, { cause })
  }
  throw new TypeError(`${name} has no certificate (PEM)`)
}

/** The same for those of a connection's other end. Throws unless the connection is encrypted: it would be in clear, although they say otherwise. */
export function checkAuthoritiesOf(isEncrypted: boolean, name: string, given: Authorities, needed: string): void {
  checkAuthorities(name, given)
  if (given !== undefined && !isEncrypted) throw new TypeError(`${name} needs ${needed}`)
}

/** Whether authorities that counted before no longer do. */
export function dropsAny(before: Authorities, after: Authorities): boolean {
  const left = textsOf(after)
  return !textsOf(before).every(one => left.includes(one))
}

type Authorities = string | Buffer | readonly (string | Buffer)[] | undefined

function textsOf(authorities: Authorities = []): readonly string[] {
  return [authorities].flat().map(String)
}

function damaged(cause?: unknown): TypeError {
  return new TypeError('a certificate in it is cut or damaged', { cause })
}
