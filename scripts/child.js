// Runs one child process in the foreground. Plain JavaScript that Node 18 can run.
import { spawn } from 'node:child_process'
import { constants } from 'node:os'

// Without a listener, each would end us alone, and the child would run on.
const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2']
const SAME_KEY_PRESS_MS = 300

/**
 * Runs a program to its end and resolves to its exit code. Passes each signal on only once: with a terminal, one Ctrl-C reaches us
 * twice, from the terminal and from npm, and the child would take the second one for "at once". So the child has its own process
 * group, and whatever is left of that group when the child ends is terminated. SIGQUIT, as from Ctrl-\, goes to the whole group.
 *
 * With `isAbandoned`, a signal kills the whole group at once, for a child that can be interrupted anywhere.
 */
export function runChild(program, args, { isAbandoned = false, ...options } = {}) {
  const isGroup = process.platform !== 'win32'
  const last = new Map()
  const forward = signal => {
    const now = Date.now()
    const isEcho = now - (last.get(signal) ?? 0) < SAME_KEY_PRESS_MS
    last.set(signal, now)
    if (isAbandoned && isGroup && child.pid !== undefined) kill(-child.pid, 'SIGKILL')
    else if (!isEcho && isGroup && child.pid !== undefined) kill(signal === 'SIGQUIT' ? -child.pid : child.pid, signal)
  }
  // Before the child can run: on a busy machine it may be up before the next line here.
  for (const signal of FORWARDED) process.on(signal, forward)
  const child = spawn(program, args, { stdio: 'inherit', detached: isGroup, ...options })
  return new Promise((resolve, reject) => {
    child.once('error', error => reject(new Error(`${program} does not start: ${error.message}`)))
    child.once('exit', (code, signal) => {
      const [received] = isAbandoned ? last.keys() : []
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
