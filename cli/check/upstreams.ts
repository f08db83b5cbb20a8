import type { Probe } from '../../protocol/base/probe.ts'
import { type CheckedTarget, checkTargets, MAX_CHECKED } from '../../router/check.ts'
import { compileTable } from '../../router/compile.ts'
import type { RouteTable } from '../../router/table.ts'

const CONNECT_MS = 5000
const HINT = 'Start the service, or correct the target of the route.'
const TLS_HINT = 'Trust a private authority with tls.ca of the route, or correct its target: name, port, https://.'

/** Dials, as the router would, each target whose host does not depend on the request. */
export async function probeUpstreams(table: RouteTable): Promise<Probe[]> {
  const { targets, more } = await checkTargets(compileTable(table), CONNECT_MS)
  return [...targets.map(probe), ...notTried(more)]
}

function probe({ route, target, ms, error }: CheckedTarget): Probe {
  const expected = target.startsWith('https:') ? 'connections, and a certificate that is trusted' : 'connections'
  return { ...upstreamProbe(`route "${route}": ${target}`, ms, error?.message, error?.reason), expected }
}

/** The probe of one target. `found` says why it failed, `code` what callers get. */
export function upstreamProbe(what: string, ms: number, found: string | undefined, code: unknown): Probe {
  const about = { code: 'upstream', what, expected: 'connections' }
  if (found === undefined) return { ...about, status: 'ok', found: `in ${ms.toFixed(1)} ms`, hint: '' }
  return { ...about, status: 'fail', found, hint: code === 'upstream-tls' ? TLS_HINT : HINT }
}

/** A note about `more` targets that were not tried. */
export function notTried(more: number): Probe[] {
  const found = `not tried: only the first ${MAX_CHECKED} of a table are`
  const about = { code: 'upstream', expected: 'connections', hint: '' }
  return more > 0 ? [{ ...about, status: 'skip', what: `${more} more targets`, found }] : []
}
