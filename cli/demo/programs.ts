import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Folders of servers, of Go and of Homebrew, which are not on everybody's PATH. */
const MORE_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/usr/local/go/bin', '/opt/homebrew/bin']

/** The path of a program, if it is installed. */
export function findProgram(name: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter).filter(folder => folder !== '')
  return [...folders, ...MORE_FOLDERS].map(folder => join(folder, name)).find(isExecutable)
}

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}
