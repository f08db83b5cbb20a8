import { createReadStream, statSync } from 'node:fs'
import { addAbortSignal, type Readable } from 'node:stream'
import { configurationError, fileProblem } from '../failure.ts'

const MAX_BYTES = 1024 * 1024
const DEADLINE_MS = 10_000

/** The last 1 MiB of a log, in whole lines. `-` is stdin, which is read for at most 10 s. */
export async function logTail(path: string): Promise<string[]> {
  let kept: Buffer = Buffer.alloc(0)
  let read = 0
  try {
    for await (const chunk of addAbortSignal(AbortSignal.timeout(DEADLINE_MS), sourceOf(path))) {
      read += (chunk as Buffer).length
      kept = Buffer.concat([kept, chunk as Buffer]).subarray(-MAX_BYTES)
    }
  } catch (error) {
    if ((error as Error).name !== 'AbortError') {
      throw configurationError(`cannot read the log ${path}: ${fileProblem(error)}`, error)
    }
  }
  const lines = kept.toString('utf8').split('\n')
  return read > MAX_BYTES ? lines.slice(1) : lines
}

/** Reads a little more than the last 1 MiB of a file, so that a line that is cut at the start can be recognised. */
function sourceOf(path: string): Readable {
  // Reading the descriptor directly would fail while a pipe is empty.
  if (path === '-') return process.stdin
  const stat = statSync(path)
  // Opening a pipe that nobody writes to would take forever.
  if (!stat.isFile()) throw new Error('it is not a plain file; pass its text on stdin and give -')
  return createReadStream(path, { start: Math.max(0, stat.size - MAX_BYTES - 1) })
}
