/** Runs somebody else's program and keeps its output. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'

export interface Ran {
  readonly code: number | null
  readonly out: string
}

/** Ends by itself, or is killed after `deadlineMs`: then it rejects. Its exit code is the caller's to judge. */
export async function runProgram(path: string, args: readonly string[], deadlineMs: number): Promise<Ran> {
  const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, TERM: 'dumb' } })
  let out = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      out += text
    })
  }
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs)
  try {
    await once(child, 'close')
  } finally {
    clearTimeout(timer)
  }
  if (child.signalCode !== null) throw new Error(`${path} was ended by ${child.signalCode}: ${out.slice(-500)}`)
  return { code: child.exitCode, out }
}

/** One line for whoever maintains the table of scores in docs/security.md. */
export function score(suite: string, result: string): void {
  console.log(`suite ${suite}: ${result}`)
}
