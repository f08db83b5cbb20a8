/**
 * Writes last-report.md, next to this file, from one or several reports, and the three charts of docs/performance.md.
 *
 *     node load-tests/document.ts [load-tests/out/report.json ...]
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { drawChart } from './lib/charts.ts'
import type { Report } from './lib/report.ts'
import { grid, type Section } from './lib/section.ts'

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))
const PAGE = path('last-report.md')
const INTRODUCTION = `# The last full report

Written by \`node load-tests/document.ts\` from the JSON of its runs. [docs/performance.md](../docs/performance.md) says what limits
each figure, and [README.md](README.md) what it means.`

/** By the name of the section and the place of its chart. */
const CHARTS = [
  { file: 'performance-cpu.svg', section: 'small-64', index: 0 },
  { file: 'performance-latency.svg', section: 'small-1', index: 0 },
  { file: 'performance-bulk.svg', section: 'bulk-down', index: 0 },
] as const

/** A separate image needs its own copy of the colours of the report's page. */
const STYLE = `<style>
text { fill: #1b1f24; font: 12px system-ui, sans-serif } .title { font-weight: 600 } .dim { fill: #5c666f; font-weight: 400 }
.grid { stroke: #dde2e7 } .ours { fill: #0b7285 } .other { fill: #b6bec6 } .paper { fill: #fff }
@media (prefers-color-scheme: dark) { text { fill: #e6e9ec } .dim { fill: #98a1a9 } .grid { stroke: #343a40 }
.ours { fill: #3bc9db } .other { fill: #59616a } .paper { fill: #14171a } }
</style><rect class="paper" width="100%" height="100%"/>`

const given = process.argv.slice(2)
const files = given.length === 0 ? [path('out/report.json')] : given
// JSON has no NaN, so a figure without a value is null in the file.
const revive = (_key: string, value: unknown) => (value === null ? Number.NaN : value)
const reports = files.map(file => JSON.parse(readFileSync(file, 'utf8'), revive) as Report)

for (const { file, section, index } of CHARTS) {
  const chart = reports.flatMap(report => report.sections).find(each => each.name === section)?.charts[index]
  if (chart === undefined) continue
  const svg = drawChart(chart).replace(/^<svg ([^>]*)>/, `<svg xmlns="http://www.w3.org/2000/svg" $1>${STYLE}`)
  writeFileSync(path(`../docs/${file}`), `${svg}\n`)
}
writeFileSync(PAGE, `${[INTRODUCTION, ...reports.map(contents)].join('\n\n')}\n`)

function contents({ environment, targets = [], sections, skipped }: Report): string {
  const facts = Object.entries(environment).map(([name, value]) => `- ${name}: ${code(name, value)}`)
  const rows = targets.map(({ about, must, goal, measured, reached }) => [about, must, goal, measured, reached])
  return [
    facts.join('\n'),
    ...skipped.map(line => line.split('\n')[0]!),
    ...(rows.length === 0 ? [] : [table(['target', 'must', 'goal', 'measured', 'reached'], rows)]),
    ...sections.map(sectionText),
  ].join('\n\n')
}

function code(name: string, value: string): string {
  return name === 'command' ? `\`${value.replace(/ --out \S+/, '')}\`` : value
}

function sectionText(section: Section): string {
  const { titles, rows } = grid(section)
  const text = rows.map(row => row.map(cell => (cell.range === undefined ? cell.text : `${cell.text} (${cell.range})`)))
  return `## ${section.title}\n\n${section.note}\n\n${table(titles, text)}`
}

function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    line(titles),
    `|${titles.map((_, index) => (index === 0 ? '---|' : '---:|')).join('')}`,
    ...rows.map(line),
  ].join('\n')
}
