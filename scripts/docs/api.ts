/** The API reference, docs/api/: a page for each entry point of the package, from the docstrings of its exports. */
import type { Declaration, EntryPoint } from './declarations.ts'
import { withLimits } from './limits.ts'

const INTRODUCTION = `# API reference

Generated from the docstrings by \`npm run docs\`. [examples/](../../examples/README.md) has a small program for each entry point.
\`await using\` in the examples needs Node 24; before, call \`close()\` at the end.

| entry point | what it is |
|---|---|
`

/** Pages by path, and what the docstrings lack. */
export function apiReference(entries: readonly EntryPoint[]): { pages: Map<string, string>; missing: string[] } {
  const rows = entries.map(entry => `| [\`${entry.name}\`](${fileOf(entry)}) | ${firstSentence(entry.about)} |\n`)
  const pages = new Map([['docs/api/README.md', INTRODUCTION + rows.join('')]])
  for (const entry of entries) pages.set(`docs/api/${fileOf(entry)}`, pageOf(entry, entries))
  return { pages, missing: missingIn(entries) }
}

function pageOf(entry: EntryPoint, entries: readonly EntryPoint[]): string {
  const elsewhere = entry.exports.flatMap(each => {
    const owner = ownerOf(each, entries)
    return owner === entry ? [] : [`[\`${each.name}\`](${fileOf(owner)}#${each.name.toLowerCase()})`]
  })
  const also = elsewhere.length === 0 ? '' : `Also exported here: ${elsewhere.join(', ')}.\n\n`
  const own = entry.exports.filter(each => ownerOf(each, entries) === entry)
  return `# ${entry.name}\n\n${asMarkdown(entry.about)}\n\n${also}${own.map(sectionOf).join('\n')}`
}

function sectionOf({ name, file, doc, code }: Declaration): string {
  const shown = withLimits(code.replace(/^export (?:declare )?/, ''))
  return `## ${name}\n\n${asMarkdown(doc)}\n\nDeclared in \`${file}\`.\n\n\`\`\`ts\n${withoutLinks(shown)}\n\`\`\`\n`
}

/** The entry point of the declaration's folder, if it exports it; otherwise the first one other than `sallyport` itself. */
function ownerOf({ name, file }: Declaration, entries: readonly EntryPoint[]): EntryPoint {
  const exporting = entries.filter(entry => entry.exports.some(each => each.name === name && each.file === file))
  const home = exporting.find(entry => file.startsWith(`${entry.name.replace('sallyport/', '')}/`))
  return home ?? exporting.find(entry => entry.name !== 'sallyport') ?? exporting[0]!
}

function fileOf(entry: EntryPoint): string {
  return `${entry.name.replace(/^sallyport\/?/, '') || 'sallyport'}.md`
}

function firstSentence(text: string): string {
  return asMarkdown(text)
    .replaceAll('\n', ' ')
    .split(/(?<=[.!?]) /, 1)[0]!
}

function asMarkdown(doc: string): string {
  const plain = doc.replaceAll(/^@example\n/gm, '').replaceAll(/^@throws \{?(\w+)\}?/gm, 'Throws `$1`')
  return withoutLinks(plain).trim()
}

function withoutLinks(text: string): string {
  return text.replaceAll(/\{@link ([\w.]+)\}/g, '`$1`')
}

/** Each export must have a docstring, and each entry point and function an example. */
function missingIn(entries: readonly EntryPoint[]): string[] {
  const missing = new Set<string>()
  for (const { name, about, exports } of entries) {
    if (about === '') missing.add(`${name}: no docstring at the head of its index.ts`)
    else if (!about.includes('```ts')) missing.add(`${name}: no example at the head of its index.ts`)
    for (const { name: each, file, doc, code } of exports) {
      if (doc === '') missing.add(`${file}: ${each} has no docstring`)
      else if (code.startsWith('export declare function') && !doc.includes('```ts')) {
        missing.add(`${file}: ${each} has no example`)
      }
    }
  }
  return [...missing].sort()
}
