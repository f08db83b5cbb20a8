import { realpathSync, statSync } from 'node:fs'
import { FileExistsError, type OutputFile, type WriteOptions, writeFiles } from '../certs/files.ts'
import { NextFile } from '../server/auth/next-file.ts'
import type { Arguments } from './args.ts'
import type { Io } from './command.ts'
import { configurationError, EXIT, fileProblem } from './failure.ts'
import { hasSwitch } from './options.ts'

/** Writes the files and names each on stdout; refuses to overwrite without `--force`. Resolves to the exit code for success. */
export async function writeOutput(files: readonly OutputFile[], args: Arguments, io: Io): Promise<number> {
  await write(files, { force: hasSwitch(args, 'force') }, io)
  return EXIT.ok
}

/** Writes the file, even if it exists, without a word. */
export function overwrite(file: OutputFile, io: Io): Promise<void> {
  return write([file], { force: true }, { ...io, out: () => {} })
}

/** Rewrites existing files, keeping their permissions. */
export type Rewrite = (files: readonly OutputFile[]) => Promise<void>

/** Runs `work`, which may rewrite the file at `path` and others, while no other command does so. */
export async function changeOutput<Result>(
  path: string,
  io: Io,
  work: (rewrite: Rewrite) => Promise<Result>,
): Promise<Result> {
  const cannot = (error: unknown) => {
    throw configurationError(`cannot change ${path}: ${fileProblem(error)}`, error)
  }
  const file = realpathSync(path)
  const lock = await NextFile.open(file).catch(cannot)
  try {
    return await work(async files => {
      await lock.demandOurs().catch(cannot)
      await write(files, { keepRights: true }, io)
    })
  } finally {
    await lock.close().catch(error => io.note(`cannot remove ${file}.next: ${fileProblem(error)}`))
  }
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
