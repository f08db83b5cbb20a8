import { formatDuration } from '../protocol/base/durations.ts'
import {
  ago,
  asRow,
  asRows,
  type Columns,
  count,
  milliseconds,
  printable,
  type Row,
  remainingTime,
  shortId,
  size,
  table,
} from './table.ts'

/** The `/status` of one component as text for people. `--json` shows all of it. */
export function describeStatus(answer: unknown, { now = Date.now() }: { now?: number } = {}): string {
  const status = asRow(answer)
  const rest =
    status.component === 'server'
      ? serverLines(status, now)
      : status.component === 'client'
        ? clientLines(status, now)
        : plainLines(status)
  return `${[headline(status, now), ...rest.map(line => (line === '' ? line : `  ${line}`))].join('\n')}\n`
}

function headline(status: Row, now: number): string {
  const up = formatDuration(now - Date.parse(String(status.startedAt)))
  const ready = status.ready === true ? 'ready' : 'NOT READY'
  return `${printable(status.component)} ${printable(status.version)}: ${ready}, running for ${up}`
}

/** Sessions of a server, as its operator sees them. */
export function sessionColumns(now: number): Columns {
  return {
    session: row => shortId(row.id),
    runtime: row => printable(row.runtime),
    instance: row => shortId(row.instance),
    conn: row => count(row.connection),
    replica: row => printable(row.replica),
    epoch: row => count(row.epoch),
    state: row => printable(row.state),
    traffic: row => (row.active === undefined ? undefined : row.active === true ? 'active' : 'standby'),
    age: row => ago(row.connectedSince, now),
    'round trip': row => milliseconds(row.rttMs),
    streams: row => count(row.streams),
    buffered: row => size(row.bufferedBytes),
    from: row => printable(row.address),
    'token expires': row => remainingTime(row.tokenEnds, now),
  }
}

function serverLines(status: Row, now: number): string[] {
  const refused = Object.entries(asRow(status.handshakesRefused))
  const reasons = refused.map(([reason, times]) => `${printable(reason)} ${count(times)}`).join(', ')
  return [
    `replica ${printable(status.replica)}: ${counted(status, ['runtimes', 'sessions', 'streams'])}, ${size(status.bufferedBytes) ?? '0 B'} buffered`,
    ...(refused.length === 0 ? [] : [`handshakes refused: ${reasons}`]),
    ...inboxLines(asRow(status.inbox)),
    ...table(asRows(status.openSessions), sessionColumns(now)),
    ...eventLines(status, now),
  ]
}

function inboxLines({ messages, bytes, store, paused }: Row): string[] {
  const counts = asRow(messages)
  if (counts.waiting === undefined) return []
  const { open, problem, setAside } = asRow(store)
  const states = ['waiting', 'dead', 'delivered'].map(state => `${count(counts[state]) ?? '0'} ${state}`)
  const stopped = Array.isArray(paused) && paused.length > 0 ? `, paused: ${paused.map(printable).join(' ')}` : ''
  return [
    `inbox: ${states.join(', ')}, ${size(bytes) ?? '0 B'}${stopped}`,
    ...(open === false ? [`inbox: NOT WORKING: ${printable(problem)}`] : []),
    ...(setAside === undefined ? [] : [`inbox: a damaged or deleted file was set aside: ${printable(setAside)}`]),
  ]
}

function clientLines(status: Row, now: number): string[] {
  const sessions = asRows(status.sessions)
  const rows = asRows(status.connections).flatMap(connection => {
    const open = sessions.filter(session => session.connection === connection.connection)
    return open.length === 0 ? [{ ...connection, state: 'none' }] : open.map(session => ({ ...connection, ...session }))
  })
  return [
    standing(status),
    ...tokenLine(status, now),
    ...table(rows, connectionColumns(now)),
    ...eventLines(status, now),
  ]
}

function standing(status: Row): string {
  const who = `runtime ${printable(status.runtime)}, instance ${shortId(status.instance)}`
  if (status.epoch === undefined || status.epoch === 0) return `${who}: not in service yet`
  const isServed = asRows(status.sessions).some(({ state }) => state === 'ready' || state === 'draining')
  const other = isServed ? 'standby (another instance gets the traffic)' : 'not connected'
  const traffic = status.active === true ? 'active' : other
  return `${who}: ${traffic}, epoch ${count(status.epoch)}`
}

function tokenLine(status: Row, now: number): string[] {
  const ends = remainingTime(status.tokenEnds, now)
  return ends === undefined ? [] : [`token ${ends.endsWith('ago') ? 'expired' : 'expires'} ${ends}`]
}

function connectionColumns(now: number): Columns {
  return {
    conn: row => count(row.connection),
    session: row => shortId(row.session),
    replica: row => printable(row.replica),
    state: row => printable(row.state),
    age: row => ago(row.connectedSince, now),
    'round trip': row => milliseconds(row.rttMs),
    streams: row => count(row.streams),
    buffered: row => size(row.bufferedBytes),
    'last error': row => lastError(row, now),
  }
}

function lastError({ lastError, lastErrorAt }: Row, now: number): string | undefined {
  if (lastError === undefined) return undefined
  const when = ago(lastErrorAt, now)
  return when === undefined ? printable(lastError) : `${when} ago: ${printable(lastError)}`
}

/** Recent events, newest first. */
function eventLines(status: Row, now: number): string[] {
  const events = asRows(status.recent)
  if (events.length === 0) return []
  const columns: Columns = {
    ago: row => ago(row.at, now),
    event: row => printable(row.event),
    runtime: row => printable(row.runtime),
    session: row => shortId(row.session),
    reason: row => printable(row.reason),
  }
  return ['', ...table(events, columns)]
}

/** Plain values of a component without sessions. */
function plainLines(status: Row): string[] {
  const known = new Set(['component', 'version', 'ready', 'startedAt'])
  return Object.entries(status)
    .filter(([name, value]) => !known.has(name) && typeof value !== 'object')
    .map(([name, value]) => `${printable(name)} ${printable(value)}`)
}

/** Adds the number to each name, in the singular for 1: `1 runtime`. */
function counted(status: Row, names: readonly string[]): string {
  return names
    .map(name => [count(status[name]) ?? '0', name] as const)
    .map(([number, name]) => `${number} ${number === '1' ? name.slice(0, -1) : name}`)
    .join(', ')
}
