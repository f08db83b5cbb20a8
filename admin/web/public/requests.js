/** The requests that an inspector has kept. */
import { ago, copyable, element, milliseconds, plain, size } from './dom.js'

/** @import { Row, View } from './views.js' */

/** @type {View} */
export const REQUESTS = {
  name: 'Requests',
  shown: ({ inspected }) => inspected !== undefined,
  rows: ({ inspected }) => inspected ?? [],
  draw: () => [],
  empty: 'There has been no request since this process started.',
  columns: [
    ['when', row => ago(row.started)],
    ['status', row => String(row.status || (row.state === 'open' ? '…' : '—'))],
    ['code', row => plain(row.code ?? (row.cut ? 'cut' : ''))],
    ['method', row => plain(row.method)],
    ['host and path', row => plain(`${row.host}${row.path}`), true],
    ['route', row => plain(row.route)],
    ['took', row => milliseconds(row.timings?.total)],
    ['in', row => size(row.bytesIn)],
    ['out', row => size(row.bytesOut)],
    ['replay of', row => plain(row.replayOf)],
  ],
  detail: row => {
    const box = element('section', { class: 'detail', 'aria-label': 'Request' })
    const known = last?.id === row.id ? last : undefined
    if (known !== undefined) box.append(...detail(known))
    if (known?.state !== 'done')
      read(row.id).then(
        found => box.replaceChildren(...detail(found)),
        () => box.replaceChildren('It is no longer kept.'),
      )
    return box
  },
}

/** The last request that was read, since the view is redrawn many times while its row is open. @type {Row | undefined} */
let last

/** @param {string} id */
async function read(id) {
  const response = await fetch(`/ui/inspect/${encodeURIComponent(id)}`, { cache: 'no-store' })
  if (!response.ok) throw new Error(`status ${response.status}`)
  /** @type {Row} */
  const found = await response.json()
  last = found
  return found
}

/** @param {Row} row @returns {Node[]} */
function detail(row) {
  const id = plain(row.id)
  return [
    element('strong', {}, `${plain(row.method)} ${plain(row.scheme)}://${plain(row.host)}${plain(row.path)}`),
    pairs([
      ['began', row.started],
      ['caller', row.caller],
      ['request id', row.requestId],
      ['code', row.code],
      ['inbox id', row.inboxId],
      ...Object.entries(row.timings ?? {}).map(([name, ms]) => [name, milliseconds(/** @type {number} */ (ms))]),
    ]),
    ...part('Request', row.request, `${id}/request`),
    ...part(`Response ${row.status || ''}`, row.response, `${id}/response`),
    ...messages(row),
    copyable(`sallyport inspect show ${id}`),
    row.replayable ? copyable(`sallyport inspect replay ${id}`) : '',
  ].map(node => (typeof node === 'string' ? document.createTextNode(node) : node))
}

/** @param {string} title @param {Row | undefined} message @param {string} path @returns {Node[]} */
function part(title, message, path) {
  if (message === undefined) return []
  const { body } = message
  const why = body?.omitted ?? (body?.truncated ? 'only its beginning was kept' : undefined)
  const said = body && [size(body.bytes), why].filter(Boolean).join(', ')
  const link = body?.saved ? element('a', { href: `/ui/inspect/${path}`, download: '' }, 'Save the body') : undefined
  return [
    element('h2', {}, title),
    pairs(message.headers),
    element('p', { class: 'quiet' }, said ? `Body: ${plain(said)} ` : '', link),
  ]
}

/** @param {Row} row @returns {Node[]} */
function messages(row) {
  if (!row.messages?.length) return []
  const rows = row.messages.map((/** @type {Row} */ one) => [
    `${one.direction === 'in' ? '→' : '←'} ${milliseconds(one.at)}`,
    `${one.kind} ${size(one.bytes)} ${one.text ?? one.omitted ?? ''}`,
  ])
  return [element('h2', {}, row.messagesDropped ? 'First messages' : 'Messages'), pairs(rows)]
}

/** @param {readonly (readonly unknown[])[]} entries */
function pairs(entries) {
  const known = entries.filter(([, value]) => value !== undefined && value !== null && value !== '')
  return element(
    'dl',
    {},
    ...known.flatMap(([name, value]) => [
      element('dt', { class: 'quiet' }, plain(name)),
      element('dd', {}, plain(value)),
    ]),
  )
}
