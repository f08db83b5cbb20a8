import { FileExistsError, type OutputFile, writeFiles } from '../certs/files.ts'
import type { Io } from './command.ts'
import { configurationError, fileProblem } from './failure.ts'

/** Writes the files and names each on stdout; refuses to overwrite without `force`. */
export async function writeOutput(files: readonly OutputFile[], force: boolean, io: Io): Promise<void> {
  try {
    await writeFiles(files, { force })
  } catch (error) {
    if (error instanceof FileExistsError) {
      throw configurationError(`${error.path} exists and is not overwritten (--force overwrites it)`)
    }
    throw configurationError(`cannot write ${files.map(file => file.path).join(', ')}: ${fileProblem(error)}`, error)
  }
  for (const file of files) io.out(`${file.path}\n`)
}
