/** Formats tables of figures. */

/** In Markdown, with columns as wide as their longest cell. */
export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const width = (column: number) => Math.max(...[head, ...rows].map(row => row[column]?.length ?? 0))
  const line = (cells: readonly string[]) => `| ${cells.map((cell, i) => cell.padEnd(width(i))).join(' | ')} |`
  const rule = `|${head.map((_, i) => '-'.repeat(width(i) + 2)).join('|')}|`
  return [line(head), rule, ...rows.map(line)].join('\n')
}

export function formatMs(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`
}
