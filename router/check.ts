/** Whether the targets of a table answer: a connection to each, as the router would open it, and nothing sent. */
import type { Socket } from 'node:net'
import { type SallyportError, toSallyportError } from '../protocol/base/errors.ts'
import type { CompiledTable } from './compiled.ts'
import type { UpstreamTarget } from './target.ts'
import { dialUpstream, SecureContexts } from './upstream/dial.ts'

/** Of one table. */
export const MAX_CHECKED = 20

/** What became of a connection to one target. */
export interface CheckedTarget {
  /** The first route that leads there. */
  readonly route: string
  /** `http://service:8080` */
  readonly target: string
  /** How long it took. */
  readonly ms: number
  /** Absent: it took the connection. */
  readonly error: SallyportError | undefined
}

/** The first 20 targets of a table whose host no caller names, and how many there are besides. */
export interface CheckedTargets {
  readonly targets: readonly CheckedTarget[]
  readonly more: number
}

/** Each has `connectMs`, all at once. Never rejects. */
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
