/** Traces as text: a line for each span below its parent, with a bar for when it was. */
import { asRow, asRows, milliseconds, printable, type Row } from './table.ts'

const BAR_CHARS = 24
const MAX_DEPTH = 8

/** One trace as `/traces` shows it. */
export function waterfall(trace: Row): string {
  const spans = asRows(trace.spans).toSorted((a, b) => Number(a.startMs) - Number(b.startMs))
  const from = Math.min(...spans.map(({ startMs }) => Number(startMs)))
  const spanMs = Math.max(...spans.map(({ endMs }) => Number(endMs))) - from
  const lines = ordered(spans).map(({ span, depth }) => {
    const name = `${'  '.repeat(depth)}${printable(span.name)}`
    return { name, bar: bar(span, from, spanMs), ms: took(span), about: aboutOf(span) }
  })
  const width = Math.max(...lines.map(({ name }) => name.length))
  const texts = lines.map(({ name, bar, ms, about }) => `  ${name.padEnd(width)}  ${bar}  ${ms.padStart(7)}  ${about}`)
  return [`trace ${printable(trace.id)}`, ...texts.map(text => text.trimEnd()), ''].join('\n')
}

/** Each below its parent; one whose parent is elsewhere begins. */
function ordered(spans: readonly Row[]): { span: Row; depth: number }[] {
  const ids = new Set(spans.map(({ id }) => id))
  const lines: { span: Row; depth: number }[] = []
  const added = new Set<Row>()
  const add = (span: Row, depth: number) => {
    if (added.has(span)) return
    added.add(span)
    lines.push({ span, depth })
    if (depth < MAX_DEPTH) for (const child of spans) if (child.parent === span.id) add(child, depth + 1)
  }
  for (const span of spans) if (!ids.has(span.parent)) add(span, 0)
  return lines
}

function bar({ startMs, endMs }: Row, from: number, spanMs: number): string {
  const at = (ms: unknown) => {
    const chars = ((Number(ms) - from) / spanMs) * BAR_CHARS
    return Number.isFinite(chars) ? Math.min(Math.max(0, chars), BAR_CHARS) : 0
  }
  const begin = Math.min(Math.floor(at(startMs)), BAR_CHARS - 1)
  const length = Math.max(1, Math.round(at(endMs)) - begin)
  return `|${' '.repeat(begin)}${'='.repeat(length)}`.padEnd(BAR_CHARS + 1).concat('|')
}

function took({ startMs, endMs }: Row): string {
  const ms = Number(endMs) - Number(startMs)
  return (Number.isFinite(ms) && milliseconds(ms)) || '0 ms'
}

/** Who says so, where, and what came of it. */
function aboutOf(span: Row): string {
  const said = asRow(span.attributes)
  const side = said['sallyport.reported_by'] === 'client' ? 'client' : 'server'
  const route = said['sallyport.route'] === undefined ? undefined : `route "${String(said['sallyport.route'])}"`
  const place = said['url.full'] ?? said['url.path']
  const failure = span.failed === true ? said['error.type'] : undefined
  const words = [side, said['http.response.status_code'], route, place, said['sallyport.reason'], failure]
  return words
    .filter(word => word !== undefined)
    .map(printable)
    .join(' ')
}
