import { setTimeout as pause } from 'node:timers/promises'

/** Calls that other threads make for us: file access and name lookups. */
const CALLS = /^(FSReq|GetAddrInfo|GetNameInfo)/
/** A call that has not ended by then never will: log lines and files take a few milliseconds. */
const PATIENCE_MS = 200
const LOOK_MS = 5
/** This very executable, even if an update has replaced or removed it meanwhile. */
const SELF = process.platform === 'linux' ? '/proc/self/exe' : process.execPath

/**
 * Ends the process. `process.exit` would wait for a file system or a resolver that does not answer, possibly forever. The kernel
 * waits for neither if the process executes another program instead, which then exits with the same code.
 */
export async function endProcess(code: number): Promise<never> {
  const begun = performance.now()
  while (isCalling() && performance.now() - begun < PATIENCE_MS) await pause(LOOK_MS)
  // Windows has no execve.
  if (isCalling() && process.execve !== undefined) {
    process.emit('exit', code)
    process.execve(SELF, [process.execPath, '--eval', `process.exitCode = ${code}`], {})
  }
  process.exit(code)
}

function isCalling(): boolean {
  return process.getActiveResourcesInfo().some(name => CALLS.test(name))
}
