import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

interface Package {
  readonly name?: string
  readonly version?: string
}

let version: string | undefined

/** The version of this package, from the sources or from dist/; `unknown` where its package.json was not shipped. */
export function packageVersion(): string {
  version ??= readVersion()
  return version
}

/** Name and version, as the ends of a session tell each other. */
export function softwareName(): string {
  return `sallyport/${packageVersion()}`
}

function readVersion(): string {
  for (let directory = import.meta.dirname; ; directory = dirname(directory)) {
    const file = join(directory, 'package.json')
    const { name, version } = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Package) : {}
    if (name === 'sallyport' && version !== undefined) return version
    if (dirname(directory) === directory) return 'unknown'
  }
}
