/** Watches a routes file and tells of each change that is a good table; a bad one is logged and left out. */
import { readFile } from 'node:fs/promises'
import { logGuard, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { watchFiles } from '../protocol/base/watch-files.ts'
import type { RouteTable } from './table.ts'

export interface WatchRoutesOptions {
  file: string
  /** From `table-file.ts`; given, so that this module needs no YAML. */
  parse: (text: string, file: string) => RouteTable
  onTable: (table: RouteTable) => void
  /** Called for a file that cannot be used; the old table stays. */
  onError?: ((error: Error) => void) | undefined
  logger?: Logger | undefined
}

export interface RoutesWatcher {
  /** Reads the file now, changed or not; rejects, and the old table stays, if it cannot be used. */
  reload(): Promise<void>
  close(): void
}

/** `text` is what was read when the first table was made. */
export function watchRoutes(text: string, options: WatchRoutesOptions): RoutesWatcher {
  const logger = safeLogger(options.logger)
  const guard = logGuard(logger, 'telling of a bad routes file failed')
  let last = text
  let closed = false
  /** The read that was begun last: an older one must not end behind a newer, and bring back what it read. */
  let turn: Promise<void> = Promise.resolve()
  const take = (force: boolean): Promise<void> => {
    const read = turn.then(() => readNow(force))
    turn = read.catch(() => {})
    return read
  }
  const readNow = async (force: boolean): Promise<void> => {
    const next = await readFile(options.file, 'utf8')
    if (closed || (next === last && !force)) return
    last = next
    options.onTable(options.parse(next, options.file))
    logger.info({ file: options.file }, 'routes reloaded')
  }
  const refuse = guard((error: Error): void => {
    logger.error({ file: options.file, problem: error.message }, 'bad routes file; the old routes stay')
    options.onError?.(error)
  })
  const watch = watchFiles([options.file], logger, () => void take(false).catch(refuse))
  const close = () => {
    closed = true
    watch.close()
  }
  return { reload: () => take(true), close }
}
