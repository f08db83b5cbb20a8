import { setTimeout as pause } from 'node:timers/promises'

/** Calls that another thread makes for us: of files, and of names. */
const CALLS = /^(FSReq|GetAddrInfo|GetNameInfo)/
/** A call that has not ended by then will not: lines of the log, and files, take a few milliseconds. */
const PATIENCE_MS = 200
const LOOK_MS = 5
/** This very program, also where an update has put another in its place meanwhile, or none. */
const SELF = process.platform === 'linux' ? '/proc/self/exe' : process.execPath

/**
 * Ends the process. `process.exit` would wait for a file system or a resolver that does not answer, which may be for ever. The
 * kernel waits for neither when another program takes the place of this one; that program ends with the same code.
 */
export async function endProcess(code: number): Promise<never> {
  const begun = performance.now()
  while (isCalling() && performance.now() - begun < PATIENCE_MS) await pause(LOOK_MS)
  // Windows has no way to take its place.
  if (isCalling() && process.execve !== undefined) {
    process.emit('exit', code)
    process.execve(SELF, [process.execPath, '--eval', `process.exitCode = ${code}`], {})
  }
  process.exit(code)
}

function isCalling(): boolean {
  return process.getActiveResourcesInfo().some(name => CALLS.test(name))
}
