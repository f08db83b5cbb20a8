/** Files that change under a running process: certificates, keys, lists, tables. */
import { type FSWatcher, watch } from 'node:fs'
import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'
import { detached, logGuard } from './guard.ts'
import type { Logger } from './log.ts'
import { inTurn, markOf } from './plain-file.ts'

export interface FilesWatch {
  close(): void
}

/** Editors and ConfigMaps write in several steps. */
const SETTLE_MS = 100
const LOOK_MS = 5_000
/** What has changed may change again within this time and bear the same time of change. */
const GRAIN_MS = 1_000

/**
 * Calls `changed` when one of the files may be another than when it was read, before or after this call. Their folders are
 * watched, since a rename over a file, and the symbolic link that a ConfigMap swaps, are seen only there; those of the files
 * that links lead to as well. The files themselves are looked at every 5 s, and the first look tells in any case: file systems
 * over a network tell nothing, and the system may have no watch to give. A look opens them, so that one that could not be opened
 * for a while is told of again once it can. What else happens in a folder, such as a log that grows, is not told. Keeps no process
 * alive.
 */
export function watchFiles(files: readonly string[], logger: Logger, changed: () => void): FilesWatch {
  let seen: string | undefined
  let newAt = Number.NEGATIVE_INFINITY
  let settling: NodeJS.Timeout | undefined
  let closed = false
  const guard = logGuard(logger, 'changed files could not be read')
  const tell = async () => {
    settling = undefined
    // First, so that what changes while it is read is found by the next look.
    const marks = await marksOf(files)
    const now = performance.now()
    if (marks !== seen) newAt = now
    seen = marks
    if (!closed && now - newAt < GRAIN_MS) changed()
  }
  const told = guard(() => detached(logger, 'changed files could not be read', tell()))
  const soon = () => {
    if (!closed) settling ??= setTimeout(told, SETTLE_MS).unref()
  }
  const changing = guard(soon)
  const watchers = new Map<string, FSWatcher | undefined>()
  const watchFolder = (folder: string) => {
    if (closed || watchers.has(folder)) return
    const warn = guard((error: unknown) =>
      logger.warn({ folder, err: error }, 'the folder cannot be watched; its files are checked every 5 s'),
    )
    watchers.set(folder, undefined)
    try {
      watchers.set(folder, watch(folder, { persistent: false }, changing).on('error', warn))
    } catch (error) {
      warn(error)
    }
  }
  for (const file of files) {
    watchFolder(dirname(file))
    const led = guard((real: string) => watchFolder(dirname(real)))
    inTurn(file, () => realpath(file)).then(led, () => {})
  }
  // One look at a time, however long a file system takes to answer.
  let looking = false
  const look = async () => {
    if (looking) return
    looking = true
    if ((await marksOf(files)) !== seen) soon()
    looking = false
  }
  const round = guard(() => detached(logger, 'files could not be looked at', look()))
  const timer = setInterval(round, LOOK_MS).unref()
  return {
    close() {
      closed = true
      clearTimeout(settling)
      clearInterval(timer)
      for (const watcher of watchers.values()) watcher?.close()
    },
  }
}

async function marksOf(files: readonly string[]): Promise<string> {
  return (await Promise.all(files.map(markOf))).join()
}
