import { X509Certificate } from 'node:crypto'
import { formatDuration } from '../../protocol/base/durations.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Probe } from '../../protocol/base/probe.ts'

const SOON_MS = 14 * 86_400_000

/** Whether the certificate in a file is in force, and for these names. */
export async function probeCertificate(flag: string, file: string, hosts: readonly string[]): Promise<Probe> {
  const about = { code: 'certificate', what: `--${flag} ${file}` }
  const expected = `in force, and for ${hosts.join(', ') || 'any name'}`
  const leaf = new X509Certificate(await readPlain(file))
  const leftMs = leaf.validToDate.getTime() - Date.now()
  const missing = hosts.filter(host => leaf.checkHost(host.replace(/^\*/, 'any'), { subject: 'never' }) === undefined)
  const found = `for ${(leaf.subjectAltName ?? 'no name').replaceAll('DNS:', '')}, ends in ${formatDuration(leftMs)}`
  const probe = (status: Probe['status'], hint: string): Probe => ({ ...about, status, found, expected, hint })
  if (leftMs <= 0) return probe('fail', 'It has ended: renew it.')
  if (leaf.validFromDate.getTime() > Date.now()) return probe('fail', 'It is not in force yet. Is the clock right?')
  if (missing.length > 0) return probe('fail', `Get one that is for ${missing.join(' and ')}, too.`)
  return leftMs < SOON_MS ? probe('warn', 'It ends soon: renew it.') : probe('ok', '')
}
