/** Watching a folder without being able to fail: where the system gives no watch, a log line says so. */
import { type FSWatcher, watch } from 'node:fs'
import type { Logger } from '../protocol/log.ts'

/** Calls `changed` whenever something in `folder` changes. It keeps no process alive. */
export function watchFolder(folder: string, logger: Logger, changed: () => void): FSWatcher | undefined {
  const warn = (error: unknown) => logger.warn({ folder, err: error }, 'the folder cannot be watched for changes')
  try {
    const watcher = watch(folder, { persistent: false }, changed)
    watcher.on('error', warn)
    return watcher
  } catch (error) {
    warn(error)
    return undefined
  }
}
