/** The thread that owns the file of an inbox. A commit blocks on the disk, which must not block the server's event loop. */
import { parentPort, workerData } from 'node:worker_threads'
import { guardWith } from '../../protocol/base/guard.ts'
import { FileError, isDamage, isFull, openFile, type SqliteFile } from './sqlite-file.ts'
import type { Answer, Committed, Question, WorkerSettings } from './sqlite-messages.ts'
import type { Change } from './store.ts'

const { path, minFreeBytes } = workerData as WorkerSettings
const port = parentPort!
let file: SqliteFile | undefined
/** The copy of a deleted file, until a file is open again. */
let rescued: string | undefined

function answer(question: Question): unknown {
  switch (question.ask) {
    case 'open': {
      rescued = leave() ?? rescued
      const opened = openFile(path, minFreeBytes)
      file = opened.file
      const setAside = opened.setAside ?? rescued
      rescued = undefined
      return { contents: file.contents(), setAside }
    }
    case 'apply':
      return apply(file!, question.changes)
    case 'next':
      return file!.next(question.runtime, question.lane, question.limit)
    case 'part':
      return file!.part(question.id, question.n)
    case 'list':
      return file!.list(question.filter)
    case 'sweep':
      check(file!)
      return file!.sweep(question.at, question.keep)
    case 'counts':
      return file!.counts()
    case 'lanes':
      return file!.lanes()
    case 'close':
      return leave()
  }
}

/** Closes the file. If it was deleted, saves a copy first and returns its name. */
function leave(): string | undefined {
  const copy = file?.isGone() === true ? file.rescue() : undefined
  file?.close()
  file = undefined
  return copy
}

/** Throws if writes would be lost when this process ends. The file is then opened again. */
function check(file: SqliteFile): void {
  if (file.isGone() || file.isLogGone()) throw new Error('the file or its write-ahead log was deleted or replaced')
}

/** If there is no room, only changes that add something are refused. The others settle messages, or make room. */
function apply(file: SqliteFile, changes: readonly Change[]): Committed[] {
  check(file)
  const others = changes.filter(change => !addsContent(change))
  try {
    if (others.length < changes.length && !file.hasRoom()) throw new FullError(NO_ROOM)
    return file.apply(changes)
  } catch (error) {
    if (others.length === 0 || failureOf(error).kind !== 'full') throw error
    const applied = file.apply(others)
    const { message } = error as Error
    return changes.map(change => (addsContent(change) ? { status: 'full', message } : applied.shift()!))
  }
}

function addsContent({ op }: Change): boolean {
  return op === 'append' || op === 'part'
}

const NO_ROOM = 'the disk has less free space than --inbox.disk-free'

class FullError extends Error {}

function failureOf(error: unknown): NonNullable<Answer['failure']> {
  const { message } = error as Error
  if (error instanceof FullError || isFull(error)) return { kind: 'full', message }
  if (
    error instanceof FileError ||
    (file === undefined && (error as { code?: string }).code?.startsWith('E') === true && !isSqlite(error))
  )
    return { kind: 'unusable', message }
  return { kind: isDamage(error) ? 'damaged' : 'away', message }
}

function isSqlite(error: unknown): boolean {
  return (error as { code?: string }).code === 'ERR_SQLITE_ERROR'
}

// An error that is thrown here ends the thread. The server logs it and starts another one.
const guard = guardWith(error => {
  throw error
})
const listen = guard((question: Question): void => {
  try {
    port.postMessage({ number: question.number, value: answer(question) })
  } catch (error) {
    port.postMessage({ number: question.number, failure: failureOf(error) })
  }
})
port.on('message', listen)
