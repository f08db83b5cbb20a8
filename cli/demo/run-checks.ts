import { messageOf } from '../../protocol/base/errors.ts'
import { CHECKS, KEPT_CHECKS } from './checks.ts'
import type { EntryPoint } from './dial.ts'

const CHECK_MS = 30_000

/** Runs every check through every entry point, prints a line for each, and returns how many failed. */
export async function runChecks(entries: readonly EntryPoint[], secret: string, all: AbortSignal): Promise<number> {
  const entryWidth = Math.max(...entries.map(entry => entry.name.length))
  const checkWidth = Math.max(...Object.keys({ ...CHECKS, ...KEPT_CHECKS }).map(name => name.length))
  let failed = 0
  for (const entry of entries) {
    const checks = { ...CHECKS, ...(entry.keeper && KEPT_CHECKS) }
    for (const [name, check] of Object.entries(checks)) {
      const signal = AbortSignal.any([all, AbortSignal.timeout(CHECK_MS)])
      const outcome = await unlessAborted(check({ entry, secret, signal }), signal).then(
        seen => ({ word: 'pass', seen }),
        error => ({ word: 'FAIL', seen: messageOf(error) }),
      )
      if (outcome.word === 'FAIL') failed++
      console.log(`${outcome.word}  ${entry.name.padEnd(entryWidth)}  ${name.padEnd(checkWidth)}  ${outcome.seen}`)
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
