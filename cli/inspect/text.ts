/** An exchange as text for a terminal. All of it comes from others. */

import type {
  InspectedBody,
  InspectedDetail,
  InspectedExchange,
  InspectedFields,
  InspectedMessage,
} from '../../client/index.ts'
import { formatDuration } from '../../protocol/base/durations.ts'
import { plainText } from '../plain-text.ts'
import { type Columns, milliseconds, printable, type Row, size, table } from '../table.ts'

/** One line of `inspect tail`. */
export function lineOf(exchange: InspectedExchange): string {
  const { started, id, method, path, status, code, route, timings, bytesOut, replayOf, cut } = exchange
  const words = [
    ...[started.slice(11, 23), id.padEnd(7), String(status || '-').padEnd(3), method.padEnd(6), path],
    ...[milliseconds(timings.total) ?? '', size(bytesOut) ?? '', route === undefined ? '' : `route ${route}`],
    ...[code ?? '', cut ? 'cut' : '', replayOf === undefined ? '' : `replay of ${replayOf}`],
  ]
  return plainText(words.filter(word => word !== '').join('  '))
}

/** All of `inspect show`. */
export function detailOf(exchange: InspectedDetail): string {
  const { request, response, messages, messagesDropped, timings, ...facts } = exchange
  const rows = Object.entries({ ...facts, ...timings }).filter(([, value]) => value !== undefined)
  const width = Math.max(...rows.map(([name]) => name.length))
  const lines = [
    ...rows.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`),
    ...['', `${exchange.method} ${exchange.path}`, ...fieldLines(request.headers), ...bodyLines(request.body)],
    ...(response === undefined ? [] : ['', `${response.status}`, ...fieldLines(response.headers)]),
    ...bodyLines(response?.body),
    ...(messages.length === 0 ? [] : ['']),
    ...messages.flatMap(messageLines),
    ...(messagesDropped ? ['... more messages were not kept'] : []),
  ]
  return `${lines.map(plainText).join('\n')}\n`
}

function fieldLines(fields: InspectedFields): string[] {
  return fields.map(([name, value]) => `${name}: ${value}`)
}

function bodyLines(body: InspectedBody | undefined): string[] {
  if (body === undefined) return []
  const { text, base64, omitted, truncated, bytes } = body
  if (omitted !== undefined) return ['', `(${bytes} bytes, not shown: ${omitted})`]
  return ['', ...(text ?? base64 ?? '').split(/\r?\n/), ...(truncated ? [`... (${bytes} bytes in all)`] : [])]
}

function messageLines({ direction, at, kind, text, base64, omitted, truncated }: InspectedMessage): string[] {
  const shown = `${text ?? base64 ?? `(${omitted})`}${truncated ? ' ...' : ''}`
  return `${direction === 'in' ? '>' : '<'} ${formatDuration(at)} ${kind}  ${shown}`.split(/\r?\n/)
}

const COMPARED: Columns = {
  ' ': row => printable(row.what),
  first: row => printable(row.first).slice(0, 60),
  replay: row => printable(row.replay).slice(0, 60),
  same: row => (row.first === row.replay ? 'yes' : 'no'),
}

/** Two answers side by side. */
export function comparison(first: InspectedDetail, replay: InspectedDetail): string {
  const names = new Set([first, replay].flatMap(({ response }) => response?.headers.map(([name]) => name) ?? []))
  const field = ({ response }: InspectedDetail, name: string) =>
    response?.headers.flatMap(([other, value]) => (other === name ? [value] : [])).join(', ')
  const row = (what: string, of: (exchange: InspectedDetail) => unknown): Row => ({
    what,
    first: of(first),
    replay: of(replay),
  })
  const rows = [
    row('id', ({ id }) => id),
    row('status', ({ status }) => status),
    row('code', ({ code }) => code),
    row('route', ({ route }) => route),
    row('time', ({ timings }) => milliseconds(timings.total)),
    row('bytes', ({ bytesOut }) => bytesOut),
    ...Array.from(names, name => row(name, exchange => field(exchange, name))),
    row('body', ({ response }) => response?.body?.text?.trimEnd() ?? response?.body?.base64 ?? response?.body?.omitted),
  ]
  return `${table(
    rows.filter(({ first, replay }) => first !== undefined || replay !== undefined),
    COMPARED,
  ).join('\n')}\n`
}
