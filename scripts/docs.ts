/**
 * Writes the tables of the documentation that are made from code: the settings in docs/configuration.md, the codes in
 * docs/errors.md. Tests hold them equal.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { COMPONENTS } from '../cli/config/components.ts'
import type { Settings } from '../cli/config/setting.ts'
import { ERRORS } from '../protocol/errors.ts'

const CONFIGURATION = join(import.meta.dirname, '../docs/configuration.md')
const ERROR_TABLE = join(import.meta.dirname, '../docs/errors.md')

/** `document` with the table below each heading `## sallyport COMPONENT` replaced. */
export function withSettingTables(document: string): string {
  return Object.entries(COMPONENTS).reduce(
    (text, [name, settings]) => withTable(text, `## sallyport ${name}\n`, settingTable(settings)),
    document,
  )
}

function settingTable(settings: Settings): string {
  const rows = Object.entries(settings).map(([name, { kind, about, default: fallback }]) => {
    const value = kind.placeholder === '' ? '' : `${kind.placeholder}${kind.list ? ', may repeat' : ''}`
    return row([`\`--${name}\``, value, fallback === undefined ? '' : `\`${fallback}\``, about])
  })
  return `| flag | value | default | what it does |\n|---|---|---|---|\n${rows.join('')}`
}

function errorTable(): string {
  const rows = Object.entries(ERRORS).map(([code, { status, source, retryable, title }]) =>
    row([`\`${code}\``, `${status}${retryable ? ', `Retry-After`' : ''}`, source, title]),
  )
  return `| code | status | where | what the caller reads |\n|---|---|---|---|\n${rows.join('')}`
}

/** `document` with the table below `## Codes` replaced. */
export function withErrorTable(document: string): string {
  return withTable(document, '## Codes\n', errorTable())
}

/** Puts `table` in the place of the first table behind `heading`; a document without it is a mistake. */
function withTable(document: string, heading: string, table: string): string {
  const start = document.indexOf(heading)
  if (start < 0) throw new Error(`there is no ${heading.trim()}`)
  const behind = start + heading.length
  return document.slice(0, behind) + document.slice(behind).replace(/(^\|.*\n)+/m, () => table)
}

function row(cells: readonly string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(CONFIGURATION, withSettingTables(readFileSync(CONFIGURATION, 'utf8')))
  writeFileSync(ERROR_TABLE, withErrorTable(readFileSync(ERROR_TABLE, 'utf8')))
}
