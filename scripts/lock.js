// A lock, so that only one installation runs at a time in a checkout. Plain JavaScript that Node 18 can run.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const POLL_MS = 300

/**
 * Runs `work` while the file at `path` names this process. If another process holds it, calls `onWait` and waits. If that process
 * has ended without releasing it, takes it over.
 */
export async function withLock(path, onWait, work) {
  for (let waited = false; !take(path); waited = true) {
    if (!waited) onWait()
    await sleep(POLL_MS)
  }
  try {
    return await work()
  } finally {
    rmSync(path, { force: true })
  }
}

function take(path) {
  try {
    writeFileSync(path, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    if (!isAlive(holder(path))) rmSync(path, { force: true })
    return false
  }
}

function holder(path) {
  try {
    return Number(readFileSync(path, 'utf8'))
  } catch {
    return 0
  }
}

function isAlive(pid) {
  try {
    return pid > 0 && process.kill(pid, 0)
  } catch (error) {
    return error.code === 'EPERM'
  }
}
