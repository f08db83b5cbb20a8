import { spawn } from 'node:child_process'
import { guardWith } from '../../protocol/base/guard.ts'

const DEADLINE_MS = 10_000
const MAX_BYTES = 16_384

/** Why the command gave no token. Says nothing of what it printed. */
class TokenCommandError extends Error {
  override readonly name = 'TokenCommandError'
}

/** Splits `PROG ARG "ARG WITH SPACES"` into words; there is no shell and nothing is expanded. */
export function splitCommand(text: string): string[] {
  const words: string[] = []
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"']+))(?=\s|$)/y
  const source = text.trim()
  while (pattern.lastIndex < source.length) {
    const match = pattern.exec(source)
    if (!match) throw new TypeError('the quotes in it do not match')
    words.push(match[1] !== undefined ? match[1].replaceAll(/\\(.)/g, '$1') : (match[2] ?? match[3]!))
  }
  if (words.length === 0) throw new TypeError('it names no program')
  return words
}

/** Runs the command; its standard output, trimmed, is the token. At most 10 s and 16 KiB; its output is never logged. */
export function runTokenCommand(words: readonly string[], deadlineMs: number = DEADLINE_MS): Promise<string> {
  const [program, ...args] = words
  return new Promise((resolve, reject) => {
    const child = spawn(program!, args, { stdio: ['ignore', 'pipe', 'ignore'], shell: false })
    let output = ''
    const fail = (message: string) => {
      clearTimeout(timer)
      child.kill('SIGKILL')
      child.stdout.destroy()
      reject(new TokenCommandError(`the token command ${message}`))
    }
    const guard = guardWith(error => fail(`failed (${String(error)})`))
    const late = guard(() => fail(`did not end within ${deadlineMs / 1000} s`))
    const timer = setTimeout(late, deadlineMs)
    const printed = guard((chunk: string) => {
      output += chunk
      if (output.length > MAX_BYTES) fail(`printed more than ${MAX_BYTES / 1024} KiB`)
    })
    const broken = guard((error: NodeJS.ErrnoException) => fail(`does not start (${error.code ?? error.message})`))
    const closed = guard((code: number | null, signal: string | null) => {
      if (code !== 0) return fail(`ended with ${signal ?? `exit code ${code}`}`)
      const token = output.trim()
      if (token === '' || /[^!-~]/.test(token)) return fail('printed no token')
      clearTimeout(timer)
      resolve(token)
    })
    child.stdout.setEncoding('latin1').on('data', printed)
    child.on('error', broken)
    child.on('close', closed)
  })
}
