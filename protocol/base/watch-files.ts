/** Watches files that change while a process runs: certificates, keys, lists, tables. */
import { type FSWatcher, watch } from 'node:fs'
import { realpath } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { logGuard, starting } from './guard.ts'
import type { Logger } from './log.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { inTurn, markOf } from './plain-file.ts'

export interface FilesWatch {
  /** Differs for each version of the files. */
  readonly version: string
  close(): void
}

/** Editors and ConfigMaps write in several steps. */
const SETTLE_MS = 100
const LOOK_MS = 5_000
/** A file that has changed may change again within this time and still have the same modification time. */
const GRAIN_MS = 1_000
/** A file that is written in place counts as complete once nothing has changed for this long. */
const QUIET_MS = 1_000
/** A file that keeps changing is reported after this time. */
const WRITING_MS = 5_000
const UNREAD = 'changed files could not be read'

/**
 * Calls `changed` when one of the files may have changed since it was read, before or after this call.
 *
 * It watches their folders, since a rename over a file, or the symbolic link that a ConfigMap swaps, is seen only there. It also
 * watches the folders of the files that links lead to. The files themselves are checked every 5 s, since network file systems send
 * no events and the system may have no watch left. The first check reports a change in any case. A check opens the files, so a file
 * that could not be opened for a while is reported once it can be.
 *
 * A rename is reported at once. A file that appears, or is written in place, is reported when nothing has changed for a second, since
 * half of a list or table may be valid. Other changes in a folder, such as a growing log, are not reported. It does not keep the
 * process alive.
 */
export function watchFiles(files: readonly string[], logger: Logger, changed: () => void): FilesWatch {
  let seen: readonly string[] | undefined
  let newAt = Number.NEGATIVE_INFINITY
  let writtenSince: number | undefined
  let settling: NodeJS.Timeout | undefined
  let closed = false
  const guard = logGuard(logger, UNREAD)
  const tell = async () => {
    settling = undefined
    // Assigned first, so that the next check finds what changes during this one.
    const before = seen
    const marks = await marksOf(files)
    const now = performance.now()
    if (!isDeepStrictEqual(marks, before)) newAt = now
    seen = marks
    if (closed) return
    if (isWritten(marks, before)) writtenSince ??= now
    const isQuiet = now - newAt >= QUIET_MS || now - (writtenSince ?? now) >= WRITING_MS
    if (writtenSince !== undefined && !isQuiet) soon()
    else if (writtenSince !== undefined || now - newAt < GRAIN_MS) {
      writtenSince = undefined
      changed()
    }
  }
  const told = starting(logger, UNREAD, tell)
  const soon = () => {
    if (!closed) settling ??= setTimeout(told, SETTLE_MS).unref()
  }
  const names = new Set(files.map(file => basename(file)))
  // Unlike a rename, this tells that the content of a file changes, even if the file is a new one in the place of another.
  const changing = guard((event: string, name: string | null) => {
    if (event === 'change' && name !== null && names.has(name)) writtenSince ??= performance.now()
    soon()
  })
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
    const led = guard((real: string) => {
      names.add(basename(real))
      watchFolder(dirname(real))
    })
    inTurn(file, () => realpath(file)).then(led, () => {})
  }
  // However long a file system takes to answer.
  const look = oneAtATime(async () => {
    if (!isDeepStrictEqual(await marksOf(files), seen)) soon()
  })
  const round = starting(logger, 'files could not be looked at', look)
  const timer = setInterval(round, LOOK_MS).unref()
  return {
    get version() {
      return String(seen)
    },
    close() {
      closed = true
      clearTimeout(settling)
      clearInterval(timer)
      for (const watcher of watchers.values()) watcher?.close()
    },
  }
}

function marksOf(files: readonly string[]): Promise<string[]> {
  return Promise.all(files.map(markOf))
}

/** Whether a file has changed without being replaced. Before the first check, we cannot know. */
function isWritten(marks: readonly string[], before: readonly string[] | undefined): boolean {
  return before === undefined || marks.some((mark, i) => mark !== before[i] && !isReplaced(mark, before[i]!))
}

/** False for a file that was missing, since it may not be complete yet. */
function isReplaced(mark: string, before: string): boolean {
  const [inode, ...rest] = before.split(' ')
  return rest.length > 0 && inode !== mark.split(' ')[0]
}
