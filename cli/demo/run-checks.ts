import { messageOf } from '../../protocol/base/errors.ts'
import { CHECKS, HTTP2_CHECKS, KEPT_CHECKS } from './checks.ts'
import type { AccessPath } from './dial.ts'

const CHECK_MS = 30_000

/** Runs every check on every road, prints a line for each, and returns how many failed. */
export async function runChecks(roads: readonly AccessPath[], secret: string, all: AbortSignal): Promise<number> {
  const roadWidth = Math.max(...roads.map(road => road.name.length))
  const checkWidth = Math.max(...Object.keys({ ...CHECKS, ...HTTP2_CHECKS, ...KEPT_CHECKS }).map(name => name.length))
  let failed = 0
  for (const road of roads) {
    const checks = { ...CHECKS, ...(road.http2 && HTTP2_CHECKS), ...(road.keeper && KEPT_CHECKS) }
    for (const [name, check] of Object.entries(checks)) {
      const signal = AbortSignal.any([all, AbortSignal.timeout(CHECK_MS)])
      const outcome = await unlessAborted(check({ road, secret, signal }), signal).then(
        seen => ({ word: 'pass', seen }),
        error => ({ word: 'FAIL', seen: messageOf(error) }),
      )
      if (outcome.word === 'FAIL') failed++
      console.log(`${outcome.word}  ${road.name.padEnd(roadWidth)}  ${name.padEnd(checkWidth)}  ${outcome.seen}`)
    }
  }
  return failed
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`no answer within ${CHECK_MS / 1000} s`))
    if (signal.aborted) late()
    signal.addEventListener('abort', late, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', late))
  })
}
