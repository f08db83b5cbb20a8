/** Lines for a terminal, made of coloured pieces. They are cut to its width and have no control characters. */
import { isFailure } from '../../protocol/base/errors.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { plainText } from '../plain-text.ts'
import { milliseconds, shortId, size } from '../table.ts'

const SGR = { plain: '', dim: '2', bold: '1', red: '31', green: '32', yellow: '33', cyan: '36' } as const

type Colour = keyof typeof SGR

export type Piece = readonly [text: string, colour: Colour]

/** Room after the aligned columns for a count and an error code in words, such as `x12  upstream refused`. */
const WORDS_WIDTH = 23
/** The columns without the path, and their gaps. */
const FIXED_WIDTH = '00:00:00  200 OPTIONS '.length + ' 9999 ms  1023 KiB  '.length
const PATH_WIDTH = { least: 10, most: 60 }

/** Local time of day. */
export function timeOfDay(date: Date): string {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(part => String(part).padStart(2, '0')).join(':')
}

/** Time, status, method, path or webhook, duration, bytes of the response and count; for our own failures, also the code in words. */
export function exchangeLine(exchange: ExchangeRecord, time: string, columns: number, times: number): Piece[] {
  const room = columns - FIXED_WIDTH - WORDS_WIDTH
  const width = Math.min(PATH_WIDTH.most, Math.max(PATH_WIDTH.least, room))
  const { status, code, cut } = exchange
  const words = [code?.replaceAll('-', ' '), cut ? 'cut' : undefined].filter(word => word !== undefined).join(', ')
  return [
    [`${time}  `, 'dim'],
    [status === 0 ? '---' : String(status), statusColour(exchange)],
    [` ${column(exchange.method || '-', 7)} `, 'bold'],
    [column(requested(exchange), width), 'plain'],
    [` ${(milliseconds(exchange.durationMs) ?? '0 ms').padStart(7)} ${size(exchange.bytesOut)!.padStart(8)}`, 'dim'],
    ...(times === 1 ? [] : ([[` x${times}`, 'bold']] as const)),
    ...(words === '' ? [] : ([[`  ${words}`, cut || isFailure(code) ? 'red' : 'dim']] as const)),
  ]
}

/** The path. For a delivery from the inbox, which may be sealed, the route and the id of the webhook. */
export function requested({ path, route, inboxId }: ExchangeRecord): string {
  return inboxId === undefined ? path || '-' : `inbox ${route} ${shortId(inboxId)}`
}

function statusColour({ status, code, cut }: ExchangeRecord): Colour {
  if (cut || status >= 500) return 'red'
  if (status === 0) return isFailure(code) ? 'red' : 'dim'
  if (status >= 400) return 'yellow'
  return status >= 300 ? 'cyan' : 'green'
}

/** Pads or cuts the text to exactly this width. */
function column(text: string, width: number): string {
  const plain = plainText(text)
  return plain.length > width ? `${plain.slice(0, width - 1)}…` : plain.padEnd(width)
}

/** Wraps `text` into rows of at most `width`, at spaces if possible. */
export function wrapped(text: string, width: number): string[] {
  const rows: string[] = []
  let rest = plainText(text)
  while (rest.length > width) {
    const space = rest.lastIndexOf(' ', width)
    const end = space > width / 2 ? space : width
    rows.push(rest.slice(0, end))
    rest = rest.slice(end).trimStart()
  }
  return [...rows, rest]
}

/** Whether any character may be wider than one column, or have no width. Anything not known to be narrow counts. */
export function hasWide(text: string): boolean {
  return /[\u0300-\u2025\u2027-\uffff]/.test(text)
}

/** The pieces as one row of at most `columns`, with or without colours. */
export function paint(pieces: readonly Piece[], columns: number, colours: boolean): string {
  let room = columns
  let row = ''
  for (const [text, colour] of pieces) {
    const shown = text.length > room ? `${text.slice(0, Math.max(0, room - 1))}${room > 0 ? '…' : ''}` : text
    room -= shown.length
    row += colours && shown !== '' && SGR[colour] !== '' ? `\x1b[${SGR[colour]}m${shown}\x1b[0m` : shown
  }
  return row
}
