/**
 * Writes what documentation is made from code: docs/configuration.md as a whole, and the table of docs/errors.md.
 * Tests hold both equal.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { COMPONENTS } from '../cli/config/components.ts'
import type { Settings } from '../cli/config/setting.ts'
import { ERRORS } from '../protocol/errors.ts'

const CONFIGURATION = join(import.meta.dirname, '../docs/configuration.md')
const ERROR_TABLE = join(import.meta.dirname, '../docs/errors.md')

const INTRODUCTION = `# Configuration

<!-- Made from cli/config/ by \`npm run docs\`; do not edit. -->

Each setting has one name: as a flag \`--auth.jwks.url\`, as a variable \`SALLYPORT_AUTH_JWKS_URL\`, in the YAML file of
\`--config\` (or \`SALLYPORT_CONFIG\`) as the path \`auth.jwks.url\`. A flag goes over a variable, a variable over the file,
the file over the default. Lists are flags that repeat, text with commas, or YAML lists. An unknown flag or key is an
error; an unknown \`SALLYPORT_*\` variable is a warning. Secrets are never values of flags: they come from files or from a
command.

\`sallyport config print server --config server.yaml\` shows each value and where it comes from, \`config validate\` checks
it with the files that it names, \`config schema\` is its JSON Schema.

Where a setting is a name and a prefix, as \`preset\` is, the file says \`preset: gitops-runtime\` and
\`preset.namespaces: [demo]\`, or \`preset: { name: gitops-runtime, namespaces: [demo] }\`.
`

/** The text of docs/configuration.md. */
export function configurationDocument(): string {
  const parts = Object.entries(COMPONENTS).map(
    ([name, settings]) => `## sallyport ${name}\n\n${settingTable(settings)}`,
  )
  return `${INTRODUCTION}\n${parts.join('\n')}`
}

function settingTable(settings: Settings): string {
  const rows = Object.entries(settings).map(([name, { kind, about, default: fallback }]) => {
    const value = kind.placeholder === '' ? '' : `${kind.placeholder}${kind.list ? ', may repeat' : ''}`
    return row([`\`--${name}\``, value, fallback === undefined ? '' : `\`${fallback}\``, about])
  })
  return `| flag | value | default | what it does |\n|---|---|---|---|\n${rows.join('')}`
}

/** The table of docs/errors.md. */
export function errorTable(): string {
  const rows = Object.entries(ERRORS).map(([code, { status, source, retryable, title }]) =>
    row([`\`${code}\``, `${status}${retryable ? ', `Retry-After`' : ''}`, source, title]),
  )
  return `| code | status | where | what the caller reads |\n|---|---|---|---|\n${rows.join('')}`
}

/** `document` with its table (there is one) replaced. */
export function withErrorTable(document: string): string {
  return document.replace(/(^\|.*\n)+/m, () => errorTable())
}

function row(cells: readonly string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(CONFIGURATION, configurationDocument())
  writeFileSync(ERROR_TABLE, withErrorTable(readFileSync(ERROR_TABLE, 'utf8')))
}
