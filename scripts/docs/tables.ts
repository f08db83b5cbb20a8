/** Tables in the documentation that are generated from code: settings and error codes. */
import { COMPONENTS } from '../../cli/config/components.ts'
import type { Settings } from '../../cli/config/setting.ts'
import { ERRORS } from '../../protocol/base/errors.ts'

/** `document` with the table under each heading `## sallyport COMPONENT` replaced. */
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

/** `document` with the table under `## Codes` replaced. */
export function withErrorTable(document: string): string {
  const rows = Object.entries(ERRORS).map(([code, { status, source, retryable, title }]) =>
    row([`\`${code}\``, `${status}${retryable ? ', `Retry-After`' : ''}`, source, title]),
  )
  const table = `| code | status | where | what the caller reads |\n|---|---|---|---|\n${rows.join('')}`
  return withTable(document, '## Codes\n', table)
}

/** Replaces the first table after `heading` with `table`. Throws if there is none. */
export function withTable(document: string, heading: string, table: string): string {
  const start = document.indexOf(heading)
  if (start < 0) throw new Error(`there is no ${heading.trim()}`)
  const behind = start + heading.length
  return document.slice(0, behind) + document.slice(behind).replace(/(^\|.*\n)+/m, () => table)
}

export function row(cells: readonly string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
}
