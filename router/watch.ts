/**
 * Watches a routes file and the CA and secret files that it names, and passes on each change that makes a valid table. A bad
 * table is logged and ignored until one of these files changes.
 */
import { logGuard, safeLogger } from '../protocol/base/guard.ts'
import { LastProblem } from '../protocol/base/last-problem.ts'
import type { Logger } from '../protocol/base/log.ts'
import { readPlain, readPlainSync } from '../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../protocol/base/watch-files.ts'
import { filesOf, MAX_TABLE_BYTES } from './files.ts'
import { type RouteTable, RouteTableError } from './table.ts'

export interface WatchRoutesOptions {
  file: string
  /** The function of `table-file.ts`. It is passed in so that this module does not load YAML. */
  parse: (text: string, file: string) => RouteTable
  onTable: (table: RouteTable) => void
  /** Called for a file that cannot be used. The old table stays in force. */
  onError?: ((error: Error) => void) | undefined
  logger?: Logger | undefined
}

export interface RoutesWatcher {
  /** Reads the file now, changed or not. Rejects if it cannot be used; the old table then stays in force. */
  reload(): Promise<void>
  close(): void
}

/** `text` and `table` are what was read at the start. */
export function watchRoutes(text: string, table: RouteTable, options: WatchRoutesOptions): RoutesWatcher {
  const logger = safeLogger(options.logger)
  const guard = logGuard(logger, 'reporting a bad routes file failed')
  let last = versionOf(text, filesOf(table))
  let closed = false
  /** The latest read. Reads run one after the other, so that an older one cannot end after a newer one. */
  let turn: Promise<void> = Promise.resolve()
  const take = (force: boolean): Promise<void> => {
    const read = turn.then(() => readNow(force))
    turn = read.catch(() => {})
    return read
  }
  const readNow = async (force: boolean): Promise<void> => {
    const next = String(await readPlain(options.file, MAX_TABLE_BYTES))
    // The compiler blocks on the files that the table names, so files that do not answer now must not be read.
    const contents = await Promise.all(last.files.map(contentOf))
    if (closed) return
    if (!force && isSame(last, next, contents)) {
      if (last.error !== undefined) throw last.error
      problem.clear()
      return
    }
    let files: readonly string[] = []
    let bad: unknown
    try {
      const read = options.parse(next, options.file)
      files = filesOf(read)
      options.onTable(read)
      problem.clear()
    } catch (error) {
      bad = error
      if (error instanceof RouteTableError) files = error.files
      throw error
    } finally {
      // What was read before the compiler read it: whatever has changed meanwhile is read once more.
      const before = new Map(last.files.map((file, i) => [file, contents[i]!]))
      last = { text: next, files, contents: files.map(file => before.get(file) ?? contentNow(file)), error: bad }
      watch(files)
    }
    logger.info({ file: options.file }, 'routes reloaded')
  }
  const problem = new LastProblem()
  const refuse = guard((error: Error): void => {
    if (!problem.isNew(error, watching?.version)) return
    logger.error({ file: options.file, err: error }, 'bad routes file; the old routes stay in force')
    options.onError?.(error)
  })
  let watching: FilesWatch | undefined
  let watched: readonly string[] | undefined
  const watch = (files: readonly string[]): void => {
    if (String(files) === String(watched)) return
    watching?.close()
    watched = files
    watching = watchFiles([options.file, ...files], logger, () => void take(false).catch(refuse))
  }
  watch(last.files)
  const close = () => {
    closed = true
    watching?.close()
  }
  return { reload: () => take(true), close }
}

/** The sources of a table: the text of its file, and the contents of the files that it names. */
interface Version {
  readonly text: string
  readonly files: readonly string[]
  readonly contents: readonly string[]
  /** Why it is not in force, if it is not. */
  readonly error?: unknown
}

function versionOf(text: string, files: readonly string[]): Version {
  return { text, files, contents: files.map(contentNow) }
}

function isSame(last: Version, text: string, contents: readonly string[]): boolean {
  return last.text === text && last.contents.every((content, i) => content === contents[i])
}

/** Throws if the file system does not answer. */
async function contentOf(file: string): Promise<string> {
  try {
    return (await readPlain(file)).toString('latin1')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ETIMEDOUT') throw error
    return codeOf(error)
  }
}

/** Synchronous, like the reads of the compiler, so that nothing else of this process runs between its read and this one. */
function contentNow(file: string): string {
  try {
    return readPlainSync(file).toString('latin1')
  } catch (error) {
    return codeOf(error)
  }
}

function codeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException).code)
}
