/** Compiles the `tls` of a route: reads the CA file, and gives it an identity that keeps connections apart (R5). */
import { createHash } from 'node:crypto'
import { certificatesIn } from '../protocol/base/certificates.ts'
import { readPlainSync } from '../protocol/base/plain-file.ts'
import type { ReportProblem } from './compile.ts'
import type { Route } from './table.ts'
import type { TlsIdentity } from './target.ts'

export function compileTls(
  route: Route,
  authorities: TableAuthorities,
  warnings: string[],
  report: ReportProblem,
): TlsIdentity | undefined {
  const tls = route.tls
  const https = route.target?.startsWith('https://') ?? false
  if (tls !== undefined && !https) report(['tls'], 'only a target that begins with https:// has TLS')
  if (!https) return undefined
  if (tls?.insecure === true) {
    warnings.push(`route "${route.name}": tls.insecure is set, any certificate of its target is accepted`)
  }
  const ca = tls?.ca === undefined ? undefined : authorities.of(tls.ca)
  if (ca?.problem !== undefined) report(['tls', 'ca'], ca.problem)
  const serverName = tls?.serverName
  const insecure = tls?.insecure ?? false
  // The key differs whenever the checks differ.
  const key = digest(JSON.stringify([ca?.digest, serverName, insecure]))
  return { key, ca: ca?.pem, serverName, insecure, http2: tls?.http2 ?? false }
}

interface Authority {
  readonly pem?: string
  readonly digest?: string
  readonly problem?: string
}

/** The CAs that a table names. Each is read and parsed once, however many routes name it. */
export class TableAuthorities {
  readonly #known = new Map<string, Authority>()

  of(ca: string): Authority {
    let known = this.#known.get(ca)
    if (known === undefined) {
      known = readAuthority(ca)
      this.#known.set(ca, known)
    }
    return known
  }
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url')
}

/** A CA is given as a file or as its text. */
export function isPemText(ca: string): boolean {
  return ca.includes('-----BEGIN')
}

function readAuthority(ca: string): Authority {
  const inline = isPemText(ca)
  let text: string
  try {
    text = inline ? ca : String(readPlainSync(ca))
  } catch (error) {
    return { problem: `cannot read ${ca} (${(error as NodeJS.ErrnoException).code})` }
  }
  try {
    const pem = certificatesIn(text).join('')
    return { pem, digest: digest(pem) }
  } catch {
    return { problem: `${inline ? 'the text' : ca} has no PEM certificate` }
  }
}
