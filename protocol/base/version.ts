import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

interface Package {
  readonly name?: string
  readonly version?: string
}

let found: { readonly folder: string; readonly version: string } | undefined

/** The version of this package, whether run from the sources or from dist/; `unknown` if its package.json is missing. */
export function packageVersion(): string {
  found ??= find()
  return found.version
}

/** The folder of package.json, where the files that are not code are, too. */
export function packageFolder(): string {
  found ??= find()
  return found.folder
}

/** Name and version, as the two ends of a session tell each other. */
export function softwareName(): string {
  return `sallyport/${packageVersion()}`
}

function find(): { folder: string; version: string } {
  // Bundlers that write CommonJS leave it undefined.
  const start = (import.meta.dirname as string | undefined) ?? '/'
  for (let folder = start; ; folder = dirname(folder)) {
    const file = join(folder, 'package.json')
    const { name, version } = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Package) : {}
    if (name === 'sallyport' && version !== undefined) return { folder, version }
    if (dirname(folder) === folder) return { folder: start, version: 'unknown' }
  }
}
