/** The thread that has the file of an inbox: a commit waits for the disk, and the event loop of the server must not. */
import { parentPort, workerData } from 'node:worker_threads'
import { guardWith } from '../../protocol/base/guard.ts'
import { FileError, isDamage, isFull, openFile, type SqliteFile } from './sqlite-file.ts'
import type { Answer, Question, WorkerSettings } from './sqlite-messages.ts'

const { path, minFreeBytes } = workerData as WorkerSettings
const port = parentPort!
let file: SqliteFile | undefined

function answer(question: Question): unknown {
  switch (question.ask) {
    case 'open': {
      file?.close()
      file = undefined
      const opened = openFile(path, minFreeBytes)
      file = opened.file
      return { contents: file.contents(), setAside: opened.setAside }
    }
    case 'apply': {
      const brings = question.changes.some(({ op }) => op === 'append' || op === 'part')
      if (brings && !file!.hasRoom()) throw new FullError('the disk has less free space than --inbox.disk-free')
      return file!.apply(question.changes)
    }
    case 'next':
      return file!.next(question.runtime, question.lane, question.limit)
    case 'part':
      return file!.part(question.id, question.n)
    case 'list':
      return file!.list(question.filter)
    case 'sweep':
      return file!.sweep(question.at, question.keep)
    case 'counts':
      return file!.counts()
    case 'close':
      file?.close()
      file = undefined
      return undefined
  }
}

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

// What is thrown here ends the thread: the server says so, and starts another one.
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
