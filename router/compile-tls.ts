/** Compiles the `tls` of a route: reads the CA file, and gives it an identity that keeps connections apart (R5). */
import { createHash } from 'node:crypto'
import { certificatesIn } from '../protocol/base/certificates.ts'
import { readPlainSync } from '../protocol/base/plain-file.ts'
import type { ReportProblem } from './compile.ts'
import type { Route } from './table.ts'
import type { TlsIdentity } from './target.ts'

export function compileTls(route: Route, warnings: string[], report: ReportProblem): TlsIdentity | undefined {
  const tls = route.tls
  const https = route.target?.startsWith('https://') ?? false
  if (tls !== undefined && !https) report(['tls'], 'only a target that begins with https:// has TLS')
  if (!https) return undefined
  if (tls?.insecure === true) {
    warnings.push(`route "${route.name}": tls.insecure is set, any certificate of its target is accepted`)
  }
  return tlsIdentity({
    ca: tls?.ca === undefined ? undefined : readCa(tls.ca, report),
    serverName: tls?.serverName,
    insecure: tls?.insecure ?? false,
    http2: tls?.http2 ?? false,
  })
}

/** An identity whose key differs whenever the checks differ. */
function tlsIdentity(parts: Omit<TlsIdentity, 'key'>): TlsIdentity {
  const text = JSON.stringify([parts.ca, parts.serverName, parts.insecure])
  return { key: createHash('sha256').update(text).digest('base64url'), ...parts }
}

/** A CA is given as a file or as its text. */
export function isPemText(ca: string): boolean {
  return ca.includes('-----BEGIN')
}

function readCa(ca: string, report: ReportProblem): string | undefined {
  const inline = isPemText(ca)
  let pem: string
  try {
    pem = inline ? ca : String(readPlainSync(ca))
  } catch (error) {
    report(['tls', 'ca'], `cannot read ${ca} (${(error as NodeJS.ErrnoException).code})`)
    return undefined
  }
  try {
    return certificatesIn(pem).join('')
  } catch {
    report(['tls', 'ca'], `${inline ? 'the text' : ca} has no PEM certificate`)
    return undefined
  }
}
