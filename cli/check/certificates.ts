import { X509Certificate } from 'node:crypto'
import { certificatesIn } from '../../protocol/base/certificates.ts'
import { formatDuration } from '../../protocol/base/durations.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Probe } from '../../protocol/base/probe.ts'

const SOON_MS = 14 * 86_400_000

/** Reads the first certificate of a file. */
export async function readLeaf(file: string): Promise<X509Certificate> {
  return new X509Certificate(await readPlain(file))
}

/** Whether it is for this name, or for all names that a `*.` stands for. */
export function isFor(leaf: X509Certificate, host: string): boolean {
  return leaf.checkHost(host.replace(/^\*/, 'any'), { subject: 'never' }) !== undefined
}

/** Checks that the certificate in a file is valid now, and for these names. */
export async function probeCertificate(flag: string, file: string, hosts: readonly string[]): Promise<Probe> {
  const about = { code: 'certificate', what: `--${flag} ${file}` }
  const expected = `valid, and for ${hosts.join(', ') || 'any name'}`
  const leaf = await readLeaf(file)
  const leftMs = leaf.validToDate.getTime() - Date.now()
  const missing = hosts.filter(host => !isFor(leaf, host))
  const found = `for ${(leaf.subjectAltName ?? 'no name').replaceAll('DNS:', '')}, ${endOf(leftMs)}`
  const probe = (status: Probe['status'], hint: string): Probe => ({ ...about, status, found, expected, hint })
  if (leftMs <= 0) return probe('fail', 'It has expired: renew it.')
  if (leaf.validFromDate.getTime() > Date.now()) return probe('fail', 'It is not valid yet. Is the clock right?')
  if (missing.length > 0) return probe('fail', `Get one that is also for ${missing.join(' and ')}.`)
  return leftMs < SOON_MS ? probe('warn', 'It expires soon: renew it.') : probe('ok', '')
}

/** Checks that one of the authorities in a file is valid now. Those whose certificates it issued are refused otherwise. */
export async function probeAuthorities(flag: string, file: string): Promise<Probe> {
  const about = { code: 'certificate', what: `--${flag} ${file}`, expected: 'an authority that is valid' }
  const all = certificatesIn(await readPlain(file)).map(pem => new X509Certificate(pem))
  const leftMs = all.filter(isAuthority).map(({ validToDate }) => validToDate.getTime() - Date.now())
  if (leftMs.length === 0) {
    const hint = 'Give the certificate of the authority, not one that it issued.'
    return { ...about, status: 'fail', found: 'no authority', hint }
  }
  const longestMs = Math.max(...leftMs)
  const status = longestMs <= 0 ? 'fail' : longestMs < SOON_MS ? 'warn' : 'ok'
  return {
    ...about,
    status,
    found: endOf(longestMs),
    hint: status === 'ok' ? '' : 'It has expired, or expires soon: renew it.',
  }
}

function endOf(leftMs: number): string {
  return leftMs > 0 ? `expires in ${formatDuration(leftMs)}` : `expired ${formatDuration(-leftMs)} ago`
}

/** A certificate that signed itself may be used like one of an authority. */
function isAuthority(certificate: X509Certificate): boolean {
  return certificate.ca || certificate.checkIssued(certificate)
}
