import { formatDuration } from '../certs/duration.ts'

type Values = Readonly<Record<string, unknown>>

/** Columns of the table of sessions, of a server's and of a client's; those that are there are shown. */
const COLUMNS = ['runtime', 'connection', 'replica', 'state', 'active', 'address', 'connectedSince', 'streams', 'rttMs']

/** What `/status` of one component says, for people; `--json` has all of it. */
export function describeStatus(answer: unknown, { now = Date.now() }: { now?: number } = {}): string {
  const status = asValues(answer)
  const sessions = asList(status.openSessions ?? status.sessions).map(asValues)
  const lines = [headline(status, now), ...details(status).map(line => `  ${line}`), ...table(sessions)]
  return `${lines.join('\n')}\n`
}

function headline(status: Values, now: number): string {
  const up = formatDuration(now - Date.parse(String(status.startedAt)))
  const ready = status.ready === true ? 'ready' : 'NOT READY'
  return `${printable(status.component)} ${printable(status.version)}: ${ready}, running for ${up}`
}

/** Plain values of the component, and why a client's connection is down. */
function details(status: Values): string[] {
  const known = new Set(['component', 'version', 'ready', 'startedAt'])
  const plain = Object.entries(status).filter(([name, value]) => !known.has(name) && typeof value !== 'object')
  const down = asList(status.connections)
    .map(asValues)
    .filter(connection => connection.lastError !== undefined)
    .map(({ connection, lastError }) => `connection ${printable(connection)}: ${printable(lastError)}`)
  return [...plain.map(([name, value]) => `${printable(name)} ${printable(value)}`), ...down]
}

function table(sessions: readonly Values[]): string[] {
  const columns = COLUMNS.filter(column => sessions.some(session => session[column] !== undefined))
  const rows = [columns, ...sessions.map(session => columns.map(column => cell(session[column])))]
  const widths = columns.map((_, column) => Math.max(...rows.map(row => row[column]!.length)))
  return sessions.length === 0
    ? []
    : rows.map(row => `  ${row.map((text, column) => text.padEnd(widths[column]!)).join('  ')}`.trimEnd())
}

function cell(value: unknown): string {
  return typeof value === 'number' ? String(Math.round(value * 10) / 10) : printable(value)
}

function asValues(value: unknown): Values {
  return typeof value === 'object' && value !== null ? (value as Values) : {}
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** What a peer told of itself must not steer the terminal. */
function printable(value: unknown): string {
  return value === undefined ? '-' : String(value).replaceAll(/[^\x20-\x7e\u00a0-\uffff]/g, '?')
}
