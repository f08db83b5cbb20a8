import { X509Certificate } from 'node:crypto'
import { formatDuration } from '../../protocol/base/durations.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Probe } from '../../protocol/base/probe.ts'

const SOON_MS = 14 * 86_400_000

/** Checks that the certificate in a file is valid now, and for these names. */
export async function probeCertificate(flag: string, file: string, hosts: readonly string[]): Promise<Probe> {
  const about = { code: 'certificate', what: `--${flag} ${file}` }
  const expected = `valid, and for ${hosts.join(', ') || 'any name'}`
  const leaf = new X509Certificate(await readPlain(file))
  const leftMs = leaf.validToDate.getTime() - Date.now()
  const missing = hosts.filter(host => leaf.checkHost(host.replace(/^\*/, 'any'), { subject: 'never' }) === undefined)
  const found = `for ${(leaf.subjectAltName ?? 'no name').replaceAll('DNS:', '')}, expires in ${formatDuration(leftMs)}`
  const probe = (status: Probe['status'], hint: string): Probe => ({ ...about, status, found, expected, hint })
  if (leftMs <= 0) return probe('fail', 'It has expired: renew it.')
  if (leaf.validFromDate.getTime() > Date.now()) return probe('fail', 'It is not valid yet. Is the clock right?')
  if (missing.length > 0) return probe('fail', `Get one that is also for ${missing.join(' and ')}.`)
  return leftMs < SOON_MS ? probe('warn', 'It expires soon: renew it.') : probe('ok', '')
}
