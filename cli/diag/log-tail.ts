import { createReadStream, statSync } from 'node:fs'
import { configurationError, fileProblem } from '../failure.ts'

const MAX_BYTES = 1024 * 1024
const DEADLINE_MS = 10_000
const STDIN = 0

/** The last 1 MiB of a log, in lines. `-` is stdin, which is read for at most 10 s. */
export async function logTail(path: string): Promise<string[]> {
  let kept: Buffer = Buffer.alloc(0)
  let read = 0
  try {
    const start = path === '-' ? 0 : Math.max(0, statSync(path).size - MAX_BYTES)
    const source = path === '-' ? { fd: STDIN, autoClose: false } : { start }
    for await (const chunk of createReadStream(path, { ...source, signal: AbortSignal.timeout(DEADLINE_MS) })) {
      read += start + (chunk as Buffer).length
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
