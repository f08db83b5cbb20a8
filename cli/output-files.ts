import { statSync } from 'node:fs'
import { FileExistsError, type OutputFile, type WriteOptions, writeFiles } from '../certs/files.ts'
import type { Io } from './command.ts'
import { configurationError, fileProblem } from './failure.ts'

/** Writes the files and names each on stdout; refuses to overwrite without `force`. */
export function writeOutput(files: readonly OutputFile[], force: boolean, io: Io): Promise<void> {
  return write(files, { force }, io)
}

/** Rewrites existing files, keeping their permissions. */
export function rewriteOutput(files: readonly OutputFile[], io: Io): Promise<void> {
  return write(files, { keepRights: true }, io)
}

async function write(files: readonly OutputFile[], options: WriteOptions, io: Io): Promise<void> {
  try {
    await writeFiles(files, options)
  } catch (error) {
    if (error instanceof FileExistsError) {
      throw configurationError(`${error.path} already exists (--force overwrites it)`)
    }
    throw configurationError(`cannot write ${files.map(file => file.path).join(', ')}: ${fileProblem(error)}`, error)
  }
  for (const file of files) io.out(`${file.path}\n`)
}

/** Whether both paths lead to the same existing file. */
export function isSameFile(one: string, other: string): boolean {
  try {
    const [a, b] = [statSync(one), statSync(other)]
    return a.dev === b.dev && a.ino === b.ino
  } catch {
    return false
  }
}
