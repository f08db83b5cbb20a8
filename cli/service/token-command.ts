import { type ChildProcess, spawn } from 'node:child_process'
import { guardWith } from '../../protocol/base/guard.ts'

const DEADLINE_MS = 10_000
const MAX_BYTES = 16_384
/** The program gets its own process group, so that one signal reaches it and everything that it started. */
const HAS_GROUPS = process.platform !== 'win32'

/** The command gave no token. The message never quotes its output. */
class TokenCommandError extends Error {
  override readonly name = 'TokenCommandError'
}

/** Splits `PROG ARG "ARG WITH SPACES"` into words. There is no shell, and nothing is expanded. */
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

/**
 * Runs the command. Its trimmed standard output is the token. It may take 10 s and print 16 KiB; its output is never logged. All
 * processes that it started are ended with it. Otherwise the children of a shell would outlive it, and each attempt leave some
 * behind.
 */
export function runTokenCommand(
  words: readonly string[],
  deadlineMs: number = DEADLINE_MS,
  signal?: AbortSignal,
): Promise<string> {
  const [program, ...args] = words
  return new Promise((resolve, reject) => {
    const child = spawn(program!, args, { stdio: ['ignore', 'pipe', 'ignore'], shell: false, detached: HAS_GROUPS })
    let output = ''
    const fail = (message: string) => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', givenUp)
      child.stdout?.destroy()
      reject(new TokenCommandError(`the token command ${message}`))
    }
    const end = (message: string) => {
      killAll(child)
      fail(message)
    }
    const guard = guardWith(error => end(`failed (${String(error)})`))
    const givenUp = guard(() => end('was given up'))
    const late = guard(() => end(`did not end within ${deadlineMs / 1000} s`))
    const timer = setTimeout(late, deadlineMs)
    const printed = guard((chunk: string) => {
      output += chunk
      if (output.length > MAX_BYTES) end(`printed more than ${MAX_BYTES / 1024} KiB`)
    })
    const broken = guard((error: NodeJS.ErrnoException) => fail(`does not start (${error.code ?? error.message})`))
    const closed = guard((code: number | null, by: string | null) => {
      if (code !== 0) return fail(`ended with ${by ?? `exit code ${code}`}`)
      const token = output.trim()
      if (token === '' || /[^!-~]/.test(token)) return fail('printed no token')
      clearTimeout(timer)
      signal?.removeEventListener('abort', givenUp)
      resolve(token)
    })
    child.on('error', broken)
    child.on('close', closed)
    // Without a file descriptor left, there is no pipe. Types do not know that.
    child.stdout?.setEncoding('latin1').on('data', printed)
    signal?.addEventListener('abort', givenUp)
  })
}

function killAll(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(HAS_GROUPS ? -child.pid : child.pid, 'SIGKILL')
  } catch {
    // All of them have ended.
  }
}
