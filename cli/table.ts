/** Tables for terminals, and the format of their values. */
import { formatDuration } from '../protocol/base/durations.ts'
import { plainText } from './plain-text.ts'

export type Row = Readonly<Record<string, unknown>>

/** Columns: title and value for a row. A column that is empty in every row is left out. */
export type Columns = Readonly<Record<string, (row: Row) => string | undefined>>

const GAP = '  '
const NOTHING = '-'

/** One line with the titles and one for each row. Empty without rows. */
export function table(rows: readonly Row[], columns: Columns): string[] {
  const filled = Object.entries(columns)
    .map(([title, show]) => ({ title, cells: rows.map(row => show(row) ?? NOTHING) }))
    .filter(({ cells }) => cells.some(cell => cell !== NOTHING))
  if (rows.length === 0 || filled.length === 0) return []
  const widths = filled.map(({ title, cells }) => Math.max(title.length, ...cells.map(cell => cell.length)))
  const line = (texts: readonly string[]) => texts.map((text, at) => text.padEnd(widths[at]!)).join(GAP)
  return [
    line(filled.map(({ title }) => title.toUpperCase())),
    ...rows.map((_, index) => line(filled.map(({ cells }) => cells[index]!))),
  ].map(text => text.trimEnd())
}

/** The table as text, or `nothing` without rows. */
export function tableText(rows: readonly Row[], columns: Columns, nothing: string): string {
  return rows.length === 0 ? `${nothing}\n` : `${table(rows, columns).join('\n')}\n`
}

/** One line for each name and value. `width` is that of the first column, including the gap. */
export function facts(rows: readonly (readonly [name: string, value: string])[], width?: number): string {
  const column = width ?? Math.max(...rows.map(([name]) => name.length)) + GAP.length
  return rows.map(([name, value]) => `${name.padEnd(column)}${value}\n`).join('')
}

/** A value as text that cannot control the terminal. */
export function printable(value: unknown): string {
  if (value === undefined || value === null || value === '') return NOTHING
  return plainText(String(value))
}

/** The first part of a UUID, which is enough to tell one from another. */
export function shortId(value: unknown): string {
  const id = printable(value)
  return /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(id) ? id.slice(0, 8) : id
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** `0 B`, `1.5 MiB`. */
export function size(value: unknown): string | undefined {
  if (typeof value !== 'number') return undefined
  let rest = value
  let unit = 0
  for (; rest >= 1024 && unit < UNITS.length - 1; unit++) rest /= 1024
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : Math.round(rest * 10) / 10} ${UNITS[unit]}`
}

/** `0.4 ms`, `87 ms`; undefined before the first measurement. */
export function milliseconds(value: unknown): string | undefined {
  if (typeof value !== 'number' || value <= 0) return undefined
  return `${value < 10 ? Math.max(0.1, Math.round(value * 10) / 10) : Math.round(value)} ms`
}

/** How long ago a time in ISO 8601 was. */
export function ago(value: unknown, now: number): string | undefined {
  const at = Date.parse(String(value))
  return Number.isNaN(at) ? undefined : formatDuration(now - at)
}

/** How long it is until a time in ISO 8601. */
export function remainingTime(value: unknown, now: number): string | undefined {
  const at = Date.parse(String(value))
  if (Number.isNaN(at)) return undefined
  return at < now ? `${formatDuration(now - at)} ago` : `in ${formatDuration(at - now)}`
}

export function count(value: unknown): string | undefined {
  return typeof value === 'number' ? String(Math.round(value)) : undefined
}

export function asRow(value: unknown): Row {
  return typeof value === 'object' && value !== null ? (value as Row) : {}
}

export function asRows(value: unknown): readonly Row[] {
  return Array.isArray(value) ? value.map(asRow) : []
}
