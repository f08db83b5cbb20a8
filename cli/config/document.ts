import { COMPONENTS } from './components.ts'
import type { Settings } from './setting.ts'

const INTRODUCTION = `# Configuration

<!-- Made from cli/config/ by scripts of this repository; \`test/cli/config/document.test.ts\` holds it equal. -->

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
  const parts = Object.entries(COMPONENTS).map(([name, settings]) => `## sallyport ${name}\n\n${table(settings)}`)
  return `${INTRODUCTION}\n${parts.join('\n')}`
}

function table(settings: Settings): string {
  const rows = Object.entries(settings).map(([name, { kind, about, default: fallback }]) => {
    const value = kind.placeholder === '' ? 'true, false' : `${kind.placeholder}${kind.list ? ', may repeat' : ''}`
    const cells = [`\`--${name}\``, value, fallback === undefined ? '' : `\`${fallback}\``, about]
    return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
  })
  return `| flag | value | default | what it does |\n|---|---|---|---|\n${rows.join('')}`
}
