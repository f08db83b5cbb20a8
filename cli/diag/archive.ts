import type { Row } from '../table.ts'
import { Cleaner, withoutKeys, withoutSecrets } from './clean.ts'
import { versions } from './versions.ts'

/** Most characters of a file. Longer ones are left out. */
const MAX_FILE_CHARACTERS = 8 * 1024 * 1024

const CONTENTS = `The results of \`sallyport diag\`. docs/diag.md describes what each file contains and what is left out.
Secrets are replaced. Names of runtimes, hosts and files, and addresses, are still there: look before you send it to anybody.
`

/** What a component may report, and the file for it. */
const FILES: Readonly<Record<string, string>> = {
  versions: 'versions.json',
  configuration: 'configuration.json',
  check: 'check.json',
  status: 'status.json',
  metrics: 'metrics.txt',
  limits: 'limits.json',
  report: 'report.json',
  log: 'log.txt',
  profile: 'profile.cpuprofile',
  problem: 'problem.txt',
}

/** Texts by path, without secrets. */
export class Archive {
  readonly files = new Map([['README.txt', CONTENTS]])
  readonly #cleaner = new Cleaner()
  /** Secrets that must not be anywhere in it. */
  secrets: readonly string[] = []

  constructor() {
    this.#put('versions.json', versions())
  }

  /** Adds a file for each thing that a component has reported. */
  add({ component, ...parts }: Row): void {
    const name = /^(?:server|client|router)$/.test(String(component)) ? String(component) : 'component'
    const folders = new Set([...this.files.keys()].map(path => path.split('/')[0]))
    let folder = name
    for (let number = 2; folders.has(folder); number++) folder = `${name}-${number}`
    for (const [part, file] of Object.entries(FILES)) {
      if (parts[part] !== undefined) this.#put(`${folder}/${file}`, parts[part])
    }
  }

  addLog(lines: readonly string[]): void {
    this.#put('log.txt', withoutKeys(lines))
  }

  #put(path: string, value: unknown): void {
    const text = this.#cleaned(path, withoutSecrets(value, this.secrets))
    this.files.set(path, text.length > MAX_FILE_CHARACTERS ? `left out: ${text.length} characters\n` : text)
  }

  #cleaned(path: string, value: unknown): string {
    if (!path.endsWith('.txt')) return `${JSON.stringify(this.#cleaner.value(value), undefined, 2)}\n`
    const lines = Array.isArray(value) ? value : [value]
    const text = lines.map(line => this.#cleaner.line(String(line).trimEnd()))
    return `${text.join('\n')}\n`
  }
}
