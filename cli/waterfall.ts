/** Traces as text: one line per span, below its parent, with a bar that shows when it ran. */
import { asRow, asRows, milliseconds, printable, type Row } from './table.ts'

const BAR_CHARS = 24
const MAX_DEPTH = 8

/** Formats one trace of `/traces`. */
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

/** Orders spans below their parents. A span whose parent is not in the list is a root. */
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

/** Side, route, place and result of a span. */
function aboutOf(span: Row): string {
  const attributes = asRow(span.attributes)
  const side = attributes['sallyport.reported_by'] === 'client' ? 'client' : 'server'
  const route =
    attributes['sallyport.route'] === undefined ? undefined : `route "${String(attributes['sallyport.route'])}"`
  const place = attributes['url.full'] ?? attributes['url.path']
  const failure = span.failed === true ? attributes['error.type'] : undefined
  const words = [side, attributes['http.response.status_code'], route, place, attributes['sallyport.reason'], failure]
  return words
    .filter(word => word !== undefined)
    .map(printable)
    .join(' ')
}
