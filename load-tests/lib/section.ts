/** A table with its charts, which a scenario passes to the report. */
import type { Chart } from './charts.ts'
import type { Figure, Measured } from './measure.ts'

export interface Column {
  readonly title: string
  /** Which figure of the row is shown. */
  readonly figure: string
  /** Shown as a multiple of the same figure in the row with this key. */
  readonly over?: string
  /** Shown as the excess over the same figure in the row with this key. */
  readonly above?: string
}

export interface Section {
  readonly name: string
  readonly title: string
  /** What was done, and how to read it. */
  readonly note: string
  readonly measured: readonly Measured[]
  readonly columns: readonly Column[]
  readonly charts: readonly Chart[]
}

export interface Cell {
  readonly text: string
  /** Shown smaller below the value: minimum and maximum. */
  readonly range?: string
  readonly isBad?: boolean
}

export const countWrong = (section: Section): number => section.measured.reduce((sum, row) => sum + row.wrong, 0)

/** The title row and the rows of the table. The first column names what was measured, and the last counts wrong answers. */
export function grid({ measured, columns }: Section): { titles: string[]; rows: Cell[][] } {
  const rows = measured.map((row): Cell[] => [
    { text: row.name },
    ...columns.map(column => cellOf(row, column, measured)),
    { text: String(row.wrong), isBad: row.wrong > 0 },
  ])
  return { titles: ['', ...columns.map(column => column.title), 'wrong'], rows }
}

function cellOf(row: Measured, { figure, over, above }: Column, measured: readonly Measured[]): Cell {
  const value = row.figures[figure]
  if (value === undefined || Number.isNaN(value.median)) return { text: '-' }
  const unit = measured.find(each => each.key === (over ?? above))?.figures[figure]?.median
  if (over !== undefined) return { text: unit === undefined || unit === 0 ? '-' : `${number(value.median / unit)}x` }
  if (above !== undefined) return { text: unit === undefined ? '-' : number(value.median - unit) }
  return { text: number(value.median), ...range(value) }
}

const range = ({ min, max }: Figure) => (min === max ? {} : { range: `${number(min)} to ${number(max)}` })

export function number(value: number): string {
  if (Number.isNaN(value)) return '-'
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en')
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2)
}

/** The section as text, for the terminal. */
export function asText(section: Section): string {
  const { titles, rows } = grid(section)
  const all = [titles, ...rows.map(row => row.map(cell => cell.text))]
  const widths = titles.map((_, column) => Math.max(...all.map(row => row[column]!.length)))
  const line = (row: readonly string[]) =>
    row.map((text, column) => (column === 0 ? text.padEnd(widths[0]!) : text.padStart(widths[column]!))).join('  ')
  return `\n${section.title}\n${all.map(line).join('\n')}\n`
}
