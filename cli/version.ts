import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The version of this package, from the sources or from dist/. */
export function packageVersion(): string {
  let directory = import.meta.dirname
  while (!existsSync(join(directory, 'package.json'))) directory = dirname(directory)
  return (JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as { version: string }).version
}
