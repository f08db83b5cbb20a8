/** The report: one HTML file that needs no network, light and dark, and the same as JSON. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { barChart, type Chart, lineChart } from './charts.ts'
import type { Figure } from './measure.ts'

export interface Cell {
  readonly text: string
  /** Shown smaller beside it: least and greatest. */
  readonly range?: string
  readonly bad?: boolean
}

export interface Section {
  readonly name: string
  readonly title: string
  /** What was done, and how to read it. */
  readonly note: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly Cell[])[]
  readonly charts?: readonly Chart[]
  /** Answers that were wrong, short or missing, over all rows. */
  readonly wrong: number
  /** The figures themselves, for the JSON file. */
  readonly data: unknown
}

export interface Report {
  readonly environment: Readonly<Record<string, string>>
  readonly sections: readonly Section[]
}

export const number = (value: number): string =>
  Number.isNaN(value)
    ? '-'
    : value >= 100
      ? Math.round(value).toLocaleString('en')
      : value >= 10
        ? value.toFixed(1)
        : value.toFixed(2)

export const cell = (value: Figure): Cell => ({
  text: number(value.median),
  range: `${number(value.min)} to ${number(value.max)}`,
})

export const ratio = (value: number): Cell => ({ text: Number.isNaN(value) ? '-' : `${value.toFixed(2)}x` })

export const wrongCell = (wrong: number): Cell => ({ text: String(wrong), bad: wrong > 0 })

/** The section as text, for the terminal. */
export function asText(section: Section): string {
  const grid = [section.columns, ...section.rows.map(row => row.map(each => each.text))]
  const widths = section.columns.map((_, column) => Math.max(...grid.map(row => row[column]!.length)))
  const line = (row: readonly string[]) =>
    row.map((text, column) => (column === 0 ? text.padEnd(widths[0]!) : text.padStart(widths[column]!))).join('  ')
  return `\n${section.title}\n${grid.map(line).join('\n')}\n`
}

/** Writes `report.html` and `report.json` into the folder; returns the path of the first. */
export function writeReport(folder: string, report: Report): string {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'report.json'), `${JSON.stringify(report, null, 2)}\n`)
  const path = join(folder, 'report.html')
  writeFileSync(path, html(report))
  return path
}

const escaped = (text: string) => text.replace(/[&<>"]/g, char => `&#${char.charCodeAt(0)};`)

function html({ environment, sections }: Report): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sallyport: load tests</title><style>${STYLE}</style></head><body><main>
<h1>Sallyport: load tests</h1>
<dl>${Object.entries(environment)
    .map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`)
    .join('')}</dl>
${sections.map(sectionHtml).join('\n')}
</main></body></html>
`
}

function sectionHtml(section: Section): string {
  const row = (cells: readonly Cell[]) =>
    `<tr>${cells
      .map(
        each =>
          `<td${each.bad ? ' class="bad"' : ''}>${escaped(each.text)}${each.range ? `<small>${escaped(each.range)}</small>` : ''}</td>`,
      )
      .join('')}</tr>`
  return `<section id="${section.name}"><h2>${escaped(section.title)}</h2><p>${escaped(section.note)}</p>
${(section.charts ?? []).map(chart => `<figure>${'bars' in chart ? barChart(chart) : lineChart(chart)}</figure>`).join('')}
<div class="scroll"><table><thead><tr>${section.columns.map(name => `<th>${escaped(name)}</th>`).join('')}</tr></thead>
<tbody>${section.rows.map(row).join('')}</tbody></table></div></section>`
}

const STYLE = `
:root { color-scheme: light dark; --ink: light-dark(#1b1f24, #e6e9ec); --dim: light-dark(#667079, #8d969e);
  --line: light-dark(#d8dde2, #343a40); --paper: light-dark(#fff, #14171a); --ours: light-dark(#0b7285, #3bc9db);
  --other: light-dark(#adb5bd, #5c646c); --bad: light-dark(#c92a2a, #ff8787); }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p { max-width: 46rem; color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; } dt { color: var(--dim); } dd { margin: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--dim); font-weight: 500; }
small { display: block; color: var(--dim); font-size: .75rem; } .bad { color: var(--bad); font-weight: 700; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .dim { fill: var(--dim); } svg .grid { stroke: var(--line); } svg .ours { fill: var(--ours); } svg .other { fill: var(--other); }
`
