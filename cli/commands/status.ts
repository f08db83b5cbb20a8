import { setTimeout as pause } from 'node:timers/promises'
import { findEndpoints, printAll, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { printResult } from '../print.ts'
import { describeStatus } from '../status-text.ts'

const WATCH_MS = 2000
const CLEAR = '\x1b[H\x1b[2J'

export const status: Run = async (args, io) => (hasSwitch(args, 'watch') ? await watch(args, io) : await show(args, io))

async function show(args: Arguments, io: Io): Promise<number> {
  const endpoints = findEndpoints(args, io)
  const asked = endpoints.map(endpoint => view(endpoint, '/status'))
  return await printAll(asked, io, answers => {
    const shown = endpoints.length === 1 ? answers[0] : answers
    printResult(args, io, shown, () => answers.map(answer => describeStatus(answer)).join('\n'))
  })
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
