import { setTimeout as pause } from 'node:timers/promises'
import { findEndpoints, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { printResult } from '../print.ts'
import { describeStatus } from '../status-text.ts'

const WATCH_MS = 2000
const CLEAR = '\x1b[H\x1b[2J'

export const status: Run = async (args, io) => (hasSwitch(args, 'watch') ? await watch(args, io) : await show(args, io))

/** Asks all components at once, shows those that answer, and fails if one does not. */
async function show(args: Arguments, io: Io): Promise<number> {
  const endpoints = findEndpoints(args, io)
  const results = await Promise.allSettled(endpoints.map(endpoint => view(endpoint, '/status')))
  const answers = results.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []))
  const failures = results.flatMap(one => (one.status === 'rejected' ? [one.reason as Error] : []))
  if (answers.length > 0) {
    const shown = endpoints.length === 1 ? answers[0] : answers
    printResult(args, io, shown, () => answers.map(answer => describeStatus(answer)).join('\n'))
  }
  const last = failures.pop()
  for (const { message } of failures) io.note(`sallyport: ${message}`)
  if (last !== undefined) throw last
  return EXIT.ok
}

/** Runs until a signal ends the process. A component that does not answer now may answer next time, so that is not a failure. */
async function watch(args: Arguments, io: Io): Promise<never> {
  for (;;) {
    let shown = ''
    const out = (text: string) => {
      shown += text
    }
    const note = (line: string) => out(`${line}\n`)
    try {
      await show(args, { ...io, note, out })
    } catch (error) {
      if (!(error instanceof Failure) || error.exitCode !== EXIT.runtime) throw error
      note(`sallyport: ${error.message}`)
    }
    io.out((process.stdout.isTTY ? CLEAR : '') + shown)
    await pause(WATCH_MS)
  }
}
