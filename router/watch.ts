/** Watches a routes file and tells of each change that is a good table; a bad one is logged and left out. */
import { type FSWatcher, watch } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { type Logger, noLogger } from '../protocol/log.ts'
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

/** Editors and ConfigMaps write in several steps: wait for the last. */
const SETTLE_MS = 50

/**
 * The folder is watched, not the file: a rename over the file, and the symbolic link that a ConfigMap swaps, are seen
 * only there. `text` is what was read when the first table was made.
 */
export function watchRoutes(text: string, options: WatchRoutesOptions): RoutesWatcher {
  const logger = options.logger ?? noLogger
  let last = text
  let timer: NodeJS.Timeout | undefined
  const take = async (force: boolean): Promise<void> => {
    const next = await readFile(options.file, 'utf8')
    if (next === last && !force) return
    last = next
    options.onTable(options.parse(next, options.file))
    logger.info({ file: options.file }, 'routes reloaded')
  }
  const refuse = (error: Error): void => {
    logger.error({ file: options.file, problem: error.message }, 'bad routes file; the old routes stay')
    options.onError?.(error)
  }
  const onChange = (): void => {
    clearTimeout(timer)
    timer = setTimeout(() => void take(false).catch(refuse), SETTLE_MS)
    timer.unref()
  }
  const watcher = watchFolder(dirname(options.file), onChange, logger)
  return {
    reload: () => take(true),
    close: () => {
      clearTimeout(timer)
      watcher?.close()
    },
  }
}

function watchFolder(folder: string, onChange: () => void, logger: Logger): FSWatcher | undefined {
  try {
    const watcher = watch(folder, { persistent: false }, onChange)
    watcher.on('error', error => logger.warn({ folder, problem: error.message }, 'the folder is no longer watched'))
    return watcher
  } catch (error) {
    logger.warn({ folder, problem: (error as Error).message }, 'the folder of the routes file cannot be watched')
    return undefined
  }
}
