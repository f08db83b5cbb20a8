import { chart } from './chart.js'
import { ago, copyable, duration, element, milliseconds, now, plain, size } from './dom.js'
import { REQUESTS } from './requests.js'

/**
 * @typedef {Record<string, any>} Row
 * @typedef {{ status: Row, history: readonly Row[], failed: readonly Row[], inspected?: readonly Row[] }} Snapshot
 * @typedef {readonly (readonly [name: string, of: (row: Row) => string, wide?: boolean])[]} Columns
 * @typedef {{
 *   name: string,
 *   shown?: (snapshot: Snapshot) => boolean,
 *   rows?: (snapshot: Snapshot) => readonly Row[],
 *   draw: (snapshot: Snapshot) => (Node | undefined)[],
 *   columns?: Columns,
 *   empty?: string,
 *   detail?: (row: Row) => Node,
 * }} View
 */

const STEP_S = 5

/** @type {readonly View[]} */
export const VIEWS = [
  { name: 'Overview', draw: overview },
  {
    name: 'Failures',
    rows: ({ failed }) => failed,
    draw: ({ status }) => [away(status)],
    empty: 'No request has failed since this process started.',
    columns: [
      ['when', row => ago(row.at)],
      ['status', row => String(row.status || '—')],
      ['code', row => plain(row.code ?? (row.cut ? 'cut' : 'from the application'))],
      ['method', row => plain(row.method)],
      ['host and path', row => plain(webhook(row) ?? `${row.host ?? ''}${row.path}`), true],
      ['runtime', row => plain(row.runtime)],
      ['after', row => milliseconds(row.durationMs)],
    ],
    detail: failure,
  },
  REQUESTS,
  {
    name: 'Sessions',
    shown: ({ status }) => status.component !== 'router',
    rows: ({ status }) => (status.component === 'server' ? status.openSessions : clientSessions(status)) ?? [],
    draw: ({ status }) => [cutNote(status, 'openSessions')],
    empty: 'No session is open.',
    columns: [
      ['session', row => plain(row.id ?? row.session ?? '—').slice(0, 8)],
      ['runtime', row => plain(row.runtime)],
      ['state', row => plain(row.state)],
      ['traffic', row => (row.active === undefined ? '' : row.active ? 'active' : 'standby')],
      ['open', row => ago(row.connectedSince).replace(' ago', '')],
      ['round trip', row => milliseconds(row.rttMs)],
      ['streams', row => plain(row.streams)],
      ['in', row => (row.bytesIn === undefined ? '' : size(row.bytesIn))],
      ['out', row => (row.bytesOut === undefined ? '' : size(row.bytesOut))],
      ['token ends', row => ago(row.tokenEnds)],
      ['from', row => plain(row.address ?? row.peer)],
      ['last error', row => [ago(row.lastErrorAt), plain(row.lastError)].filter(Boolean).join(': '), true],
    ],
    detail: row => members('Session', row, row.id && `sallyport sessions show --session ${plain(row.id).slice(0, 8)}`),
  },
  {
    name: 'Inbox',
    shown: ({ status }) => status.inbox !== undefined && status.inbox?.messages !== undefined,
    draw: inbox,
  },
  {
    name: 'Events',
    rows: ({ status }) => status.recent ?? [],
    shown: ({ status }) => status.component !== 'router',
    draw: () => [],
    empty: 'No session has opened or ended yet.',
    columns: [
      ['when', row => ago(row.at)],
      ['event', row => plain(row.event)],
      ['runtime', row => plain(row.runtime)],
      ['session', row => plain(row.session).slice(0, 8)],
      ['reason', row => plain(row.reason), true],
    ],
    detail: row => members('Event', row),
  },
]

/** @param {Snapshot} snapshot */
function overview({ status, history, failed }) {
  const sum = (/** @type {Row} */ step) =>
    step.byClass.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0)
  const rates = history.map(step => sum(step) / STEP_S)
  const latest = failed.find(({ code }) => code !== 'cancelled')
  return [
    facts(status),
    away(status),
    latest && now() - latest.at < 900_000
      ? element(
          'p',
          { class: 'bad' },
          `Last failure ${ago(latest.at)}: ${plain(latest.title ?? `status ${latest.status}`)}`,
        )
      : undefined,
    element(
      'div',
      { class: 'charts' },
      chart(
        'Requests',
        rates,
        history.map(step => step.failed / STEP_S),
        {
          unit: rate,
          names: ['all', 'failed'],
          bad: true,
        },
      ),
      chart(
        'Duration',
        history.map(step => step.p50),
        history.map(step => step.p95),
        {
          unit: milliseconds,
          names: ['p50', 'p95'],
        },
      ),
      chart(
        'Bytes',
        history.map(step => step.bytesIn / STEP_S),
        history.map(step => step.bytesOut / STEP_S),
        {
          unit: value => `${size(Math.round(value))}/s`,
          names: ['in', 'out'],
        },
      ),
    ),
  ]
}

/**
 * Why a client has no session, and gets no requests.
 * @param {Row} status
 */
function away(status) {
  // The `connections` of a router are a number.
  if (status.component !== 'client') return undefined
  const rows = clientSessions(status)
  const failed = rows.some(serves) ? undefined : rows.find(row => row.lastError !== undefined)
  return failed && element('p', { class: 'bad' }, `Not connected: ${plain(failed.lastError)}`)
}

/** @param {number} value */
function rate(value) {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)}/s`
}

/** @param {Row} status */
function facts(status) {
  const { inbox: kept, startedAt } = status
  /** @type {[string, unknown][]} */
  const all = [
    ['running for', duration((now() - Date.parse(startedAt)) / 1000)],
    ['runtime', status.runtime],
    ['runtimes', status.runtimes],
    ['sessions', Array.isArray(status.sessions) ? status.sessions.length : status.sessions],
    ['traffic', traffic(status)],
    ['open requests', typeof status.exchanges === 'object' ? status.exchanges?.live : status.exchanges],
    ['waiting', status.held],
    ['buffered', status.bufferedBytes === undefined ? undefined : size(status.bufferedBytes)],
    [
      Date.parse(status.tokenEnds) < now() ? 'token expired' : 'token ends',
      status.tokenEnds === undefined ? undefined : ago(status.tokenEnds),
    ],
    ['directory', status.directory && `${status.directory.kind}, ${status.directory.state}`],
    ['webhooks waiting', kept?.messages?.waiting],
    ['dead letters', kept?.messages?.dead],
    ['routes', status.routes],
  ]
  const shown = all.filter(([, value]) => value !== undefined)
  return element(
    'dl',
    { class: 'facts' },
    ...shown.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, plain(value)))),
  )
}

/** @param {Row} status */
function traffic({ component, active, sessions }) {
  if (active === undefined || component === 'router') return undefined
  if (!sessions?.some(serves)) return 'none'
  return active ? 'active' : 'standby'
}

/**
 * Whether requests may arrive on a session of a client.
 * @param {Row} session
 */
function serves({ state }) {
  return state === 'ready' || state === 'draining'
}

/** @param {Row} status */
function clientSessions(status) {
  /** @type {readonly Row[]} */
  const connections = status.connections ?? []
  return connections.flatMap(connection => {
    const open = (status.sessions ?? []).filter((/** @type {Row} */ one) => one.connection === connection.connection)
    return open.length === 0
      ? [{ ...connection, state: 'none' }]
      : open.map((/** @type {Row} */ one) => ({ ...connection, ...one }))
  })
}

/**
 * @param {Row} status
 * @param {string} list
 */
function cutNote(status, list) {
  const all = status.rowsInAll?.[list]
  if (all === undefined) return undefined
  return element(
    'p',
    { class: 'quiet' },
    `The first ${status[list].length} of ${all}. \`sallyport sessions\` lists all.`,
  )
}

/**
 * The route and the id of a webhook that the inbox delivers. Its path may be sealed.
 * @param {Row} row
 */
function webhook(row) {
  return row.inboxId === undefined ? undefined : `inbox ${row.route} ${plain(row.inboxId).slice(0, 8)}`
}

/** @param {Row} row */
function failure(row) {
  const path = plain(`https://${row.host ?? ''}${row.path}`)
  const box = element(
    'section',
    { class: 'detail', 'aria-label': 'Failure' },
    element('strong', {}, plain(row.title ?? `The application answered ${row.status}.`)),
    row.advice === undefined ? undefined : element('p', {}, plain(row.advice)),
    list({
      code: row.code,
      status: row.status || 'none was sent',
      request: webhook(row) === undefined ? `${row.method} ${path}` : undefined,
      webhook: row.inboxId,
      'request id': row.requestId,
      runtime: row.runtime,
      route: row.route,
      duration: milliseconds(row.durationMs),
      at: new Date(row.at).toISOString(),
    }),
  )
  if (row.inboxId !== undefined) box.append(copyable(`sallyport inbox show ${shellWord(plain(row.inboxId))}`))
  else if (row.code === 'no-route') box.append(copyable(`sallyport route test ${shellWord(path)} --routes routes.yaml`))
  return box
}

/**
 * @param {string} title
 * @param {Row} row
 * @param {string} [command]
 */
function members(title, row, command) {
  const box = element('section', { class: 'detail', 'aria-label': title }, list(row))
  if (command) box.append(copyable(command))
  return box
}

/** @param {Row} row */
function list(row) {
  const entries = Object.entries(row).filter(([, value]) => value !== undefined && value !== null && value !== '')
  const pairs = entries.flatMap(([name, value]) => {
    const text = typeof value === 'object' ? JSON.stringify(value) : value
    return [element('dt', { class: 'quiet' }, plain(name)), element('dd', {}, plain(text))]
  })
  return element('dl', {}, ...pairs)
}

/** @param {string} text */
function shellWord(text) {
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** @param {Snapshot} snapshot */
function inbox({ status }) {
  const { messages, bytes, oldestSeconds, paused, store, dead } = status.inbox
  const troubles = Object.entries(dead ?? {}).filter(([, count]) => Number(count) > 0)
  return [
    store?.open === false ? element('p', { class: 'bad' }, `It is not working: ${plain(store.problem)}`) : undefined,
    element(
      'dl',
      { class: 'facts' },
      ...[
        ['waiting', messages.waiting],
        ['delivered, kept for a while', messages.delivered],
        ['dead letters', messages.dead],
        ['bytes', size(bytes)],
        ['oldest waits', messages.waiting > 0 ? duration(Number(oldestSeconds)) : 'none waits'],
        ['paused', (paused ?? []).join(' ') || 'nobody'],
      ].map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, plain(value)))),
    ),
    troubles.length === 0
      ? undefined
      : element('p', {}, `Dead letters by reason: ${troubles.map(([name, count]) => `${name} ${count}`).join(', ')}.`),
    element('h2', {}, 'Look closer, deliver again'),
    copyable('sallyport inbox list'),
    copyable('sallyport inbox replay --state dead --runtime NAME'),
  ]
}
