// One child process in the foreground. Plain JavaScript that Node 18 can read.
import { spawn } from 'node:child_process'
import { constants } from 'node:os'

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP']
const SAME_KEY_PRESS_MS = 300

/**
 * Runs a program to its end and resolves to its exit code. A signal reaches the child once: at a terminal one Ctrl-C
 * reaches us twice, from the terminal and from npm, and the second would mean "at once" to the child. So the child has a
 * group of its own, and whatever of that group outlives the child is ended.
 *
 * With `isAbandoned`, a signal ends the whole group at once: for a child that can be broken off anywhere.
 */
export function runChild(program, args, { isAbandoned = false, ...options } = {}) {
  const isGroup = process.platform !== 'win32'
  const child = spawn(program, args, { stdio: 'inherit', detached: isGroup, ...options })
  const last = new Map()
  const forward = signal => {
    const now = Date.now()
    const isEcho = now - (last.get(signal) ?? 0) < SAME_KEY_PRESS_MS
    last.set(signal, now)
    if (isAbandoned && isGroup && child.pid !== undefined) kill(-child.pid, 'SIGKILL')
    else if (!isEcho && isGroup && child.pid !== undefined) kill(child.pid, signal)
  }
  for (const signal of FORWARDED) process.on(signal, forward)
  return new Promise((resolve, reject) => {
    child.once('error', error => reject(new Error(`${program} does not start: ${error.message}`)))
    child.once('exit', (code, signal) => {
      const [received] = last.keys()
      resolve(code ?? 128 + constants.signals[received ?? signal])
    })
  }).finally(() => {
    for (const signal of FORWARDED) process.off(signal, forward)
    if (isGroup && child.pid !== undefined) kill(-child.pid, 'SIGTERM')
  })
}

function kill(pid, signal) {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}
