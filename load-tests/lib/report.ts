/** The report: one HTML file that needs no network, light and dark, and the same data as JSON next to it. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { drawChart, escaped } from './charts.ts'
import { type Cell, countWrong, grid, type Section } from './section.ts'
import type { Assessed } from './targets.ts'

export interface Report {
  readonly title: string
  readonly environment: Readonly<Record<string, string>>
  readonly sections: readonly Section[]
  /** Scenarios that were not run, and why. */
  readonly skipped: readonly string[]
  readonly targets?: readonly Assessed[]
}

/** Writes `report.html` and `report.json` into the folder. Returns the path of the first. */
export function writeReport(folder: string, report: Report): string {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'report.json'), `${JSON.stringify(report, null, 2)}\n`)
  const path = join(folder, 'report.html')
  writeFileSync(path, page(report))
  return path
}

function page({ title, environment, sections, skipped, targets = [] }: Report): string {
  const wrong = sections.reduce((sum, section) => sum + countWrong(section), 0)
  const verdict =
    wrong === 0
      ? '<p>No answer was wrong, short or missing.</p>'
      : `<p class="bad">${wrong} answers were wrong, short or missing.</p>`
  const facts = Object.entries(environment).map(
    ([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`,
  )
  const links = sections.map(({ name, title }) => `<a href="#${name}">${escaped(title)}</a>`)
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,"><title>${escaped(title)}</title><style>${STYLE}</style></head><body><main>
<h1>${escaped(title)}</h1>
<dl>${facts.join('')}</dl>
${verdict}
${skipped.map(each => `<p>${escaped(each)}</p>`).join('')}
<p>Each figure is the median of the rounds, with minimum and maximum below it. Rounds are interleaved: each row runs once
before any row runs again. CPU is user and system time of the processes of the setup, without the load generator and the
upstream.</p>
<nav>${links.join('')}</nav>
${targets.length === 0 ? '' : targetsHtml(targets)}
${sections.map(sectionHtml).join('\n')}
</main></body></html>
`
}

const REACHED = { goal: 'goal reached', must: 'must reached', no: 'not reached' } as const

function targetsHtml(targets: readonly Assessed[]): string {
  const rows = targets.map(({ about, must, goal, measured, reached }) => {
    const cells = [about, must, goal, measured].map(text => `<td>${escaped(text)}</td>`)
    return `<tr>${cells.join('')}<td class="${reached === 'no' ? 'bad' : ''}">${REACHED[reached]}</td></tr>`
  })
  return `<section id="targets"><h2>Against the targets</h2><p>For the tunnel with an embedded router and a plain edge, in this
run. The targets are for a machine with two cores and nothing else running.</p><div class="scroll"><table><thead><tr><th></th><th>must</th>
<th>goal</th><th>measured</th><th></th></tr></thead><tbody>${rows.join('')}</tbody></table></div></section>`
}

function sectionHtml(section: Section): string {
  const { titles, rows } = grid(section)
  const row = (cells: readonly Cell[]) => `<tr>${cells.map(cellHtml).join('')}</tr>`
  return `<section id="${section.name}"><h2>${escaped(section.title)}</h2><p>${escaped(section.note)}</p>
${section.charts.map(chart => `<figure>${drawChart(chart)}</figure>`).join('')}
<div class="scroll"><table><thead><tr>${titles.map(name => `<th>${escaped(name)}</th>`).join('')}</tr></thead>
<tbody>${rows.map(row).join('')}</tbody></table></div></section>`
}

function cellHtml({ text, range, isBad }: Cell): string {
  const under = range === undefined ? '' : `<small>${escaped(range)}</small>`
  return `<td${isBad ? ' class="bad"' : ''}>${escaped(text)}${under}</td>`
}

const STYLE = `
:root { color-scheme: light dark; --ink: light-dark(#1b1f24, #e6e9ec); --dim: light-dark(#5c666f, #98a1a9);
  --line: light-dark(#dde2e7, #343a40); --paper: light-dark(#fff, #14171a); --ours: light-dark(#0b7285, #3bc9db);
  --other: light-dark(#b6bec6, #59616a); --bad: light-dark(#c92a2a, #ff8787); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; } h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
section { margin-top: 2.5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; color: var(--dim); margin: .5rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.25rem; font-size: .9rem; margin: 0 0 1rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .9rem; margin-top: 1rem; } a { color: var(--ours); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th { color: var(--dim); font-weight: 500; }
small { display: block; color: var(--dim); font-size: .75rem; } .bad, p.bad { color: var(--bad); font-weight: 700; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .title { font-weight: 600; }
svg .dim { fill: var(--dim); font-weight: 400; } svg .grid { stroke: var(--line); }
svg .ours { fill: var(--ours); } svg .other { fill: var(--other); }
`
