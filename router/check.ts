/** Checks that the targets of a table accept connections. Connects to each as the router would, and sends nothing. */
import type { Socket } from 'node:net'
import { type SallyportError, toSallyportError } from '../protocol/base/errors.ts'
import type { CompiledTable } from './compiled.ts'
import type { UpstreamTarget } from './target.ts'
import { dialUpstream, SecureContexts } from './upstream/dial.ts'

/** Most targets of one table that are checked. */
export const MAX_CHECKED = 20

/** The result of connecting to one target. */
export interface CheckedTarget {
  /** The first route with this target. */
  readonly route: string
  /** `http://service:8080` */
  readonly target: string
  /** How long the connection took, in ms. */
  readonly ms: number
  /** Why it failed. Absent if the target accepted the connection. */
  readonly error: SallyportError | undefined
}

/** The results for the first 20 targets whose host does not depend on the request, and how many more there are. */
export interface CheckedTargets {
  readonly targets: readonly CheckedTarget[]
  readonly more: number
}

/** Dials all targets at once, each within `connectMs`. Never rejects. */
export async function checkTargets({ routes }: CompiledTable, connectMs: number): Promise<CheckedTargets> {
  const targets = new Map<string, readonly [route: string, target: UpstreamTarget]>()
  for (const { name, target } of routes) {
    if (target !== undefined && !targets.has(target.key)) targets.set(target.key, [name, target])
  }
  const tried = [...targets.values()].slice(0, MAX_CHECKED)
  return {
    targets: await Promise.all(tried.map(([route, target]) => checkOne(route, target, connectMs))),
    more: targets.size - tried.length,
  }
}

async function checkOne(route: string, target: UpstreamTarget, connectMs: number): Promise<CheckedTarget> {
  const begun = performance.now()
  const found = (error: SallyportError | undefined): CheckedTarget => {
    return { route, target: `${target.protocol}://${target.authority}`, ms: performance.now() - begun, error }
  }
  try {
    const socket = await dial(target, connectMs)
    socket.destroy()
    return found(undefined)
  } catch (error) {
    return found(toSallyportError(error))
  }
}

function dial(target: UpstreamTarget, connectMs: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    dialUpstream(target, '', connectMs, new SecureContexts(), (error, socket) => {
      if (socket === undefined) reject(error)
      else resolve(socket)
    })
  })
}
