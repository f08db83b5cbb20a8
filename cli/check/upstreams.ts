import type { Socket } from 'node:net'
import type { Probe } from '../../protocol/base/probe.ts'
import { compileTable } from '../../router/compile.ts'
import type { RouteTable } from '../../router/table.ts'
import type { UpstreamTarget } from '../../router/target.ts'
import { dialUpstream, SecureContexts } from '../../router/upstream/dial.ts'

const CONNECT_MS = 5000
const MAX_TARGETS = 20

/** Dials each target whose host no caller names, as the router would. */
export async function probeUpstreams(table: RouteTable): Promise<Probe[]> {
  const targets = new Map<string, readonly [route: string, target: UpstreamTarget]>()
  for (const { name, target } of compileTable(table).routes) {
    if (target !== undefined && !targets.has(target.key)) targets.set(target.key, [name, target])
  }
  const tried = [...targets.values()].slice(0, MAX_TARGETS).map(([route, target]) => probe(route, target))
  const left = targets.size - MAX_TARGETS
  return [...(await Promise.all(tried)), ...(left > 0 ? [notTried(left)] : [])]
}

function notTried(left: number): Probe {
  const found = `not tried: only the first ${MAX_TARGETS} of a table are`
  return { code: 'upstream', status: 'skip', what: `${left} more targets`, found, expected: 'connections', hint: '' }
}

async function probe(route: string, target: UpstreamTarget): Promise<Probe> {
  const begun = performance.now()
  const what = `route "${route}": ${target.protocol}://${target.authority}`
  const expected = target.protocol === 'https' ? 'connections, and a certificate that is trusted' : 'connections'
  const about = { code: 'upstream', what, expected }
  try {
    const socket = await dial(target)
    socket.destroy()
    return { ...about, status: 'ok', found: `in ${(performance.now() - begun).toFixed(1)} ms`, hint: '' }
  } catch (error) {
    const { message: found } = error as Error
    return { ...about, status: 'fail', found, hint: 'Start the service, or mend the target of the route.' }
  }
}

function dial(target: UpstreamTarget): Promise<Socket> {
  return new Promise((resolve, reject) => {
    dialUpstream(target, '', CONNECT_MS, new SecureContexts(), (error, socket) => {
      if (socket === undefined) reject(error)
      else resolve(socket)
    })
  })
}
