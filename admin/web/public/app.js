import { copyable, element, plain, setClock } from './dom.js'
import { VIEWS } from './views.js'

/** @import { Row, Snapshot, View } from './views.js' */

const RETRY_MS = 2000
/** Snapshots come every two seconds. After this long without a byte, the component is stuck, or the way to it is. */
const SILENCE_MS = 10_000
const MAX_STEPS = 179

/** @type {Snapshot | undefined} */
let snapshot
/** @type {'connecting' | 'open' | 'lost' | 'locked' | 'full'} */
let link = 'connecting'
let current = VIEWS[0].name
/** The chosen row of the view, and whether its detail is open. */
let chosen = -1
let opened = false
/** @type {Row | undefined} */
let shownRow

const view = at('view')
const tabs = at('tabs')

/** @param {string} id */
function at(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`there is no #${id}`)
  return found
}

/** @returns {readonly View[]} */
function views() {
  const known = snapshot
  return VIEWS.filter(({ shown }) => known === undefined || shown === undefined || shown(known))
}

function currentView() {
  return views().find(({ name }) => name === current) ?? VIEWS[0]
}

/** @returns {readonly Row[]} */
function rows() {
  return (snapshot && currentView().rows?.(snapshot)) ?? []
}

function draw() {
  drawHead()
  drawTabs()
  const known = snapshot
  if (known === undefined) return view.replaceChildren(waiting())
  const nodes = nodesOf(known)
  const hadFocus = document.activeElement instanceof HTMLTableRowElement && view.contains(document.activeElement)
  view.replaceChildren(...nodes)
  if (hadFocus) focusRow()
}

/**
 * A view that cannot show something says so, and does not end the page's updates.
 * @param {Snapshot} known
 */
function nodesOf(known) {
  const { draw: drawView, columns, empty = '' } = currentView()
  try {
    const nodes = drawView(known).filter(node => node !== undefined)
    if (columns === undefined) return nodes
    const all = rows()
    return [...nodes, all.length === 0 ? element('p', { class: 'empty' }, empty) : table(all)]
  } catch (error) {
    return [element('p', { class: 'bad' }, `This view cannot be shown: ${plain(String(error))}`)]
  }
}

function drawHead() {
  const { component, version, ready } = snapshot?.status ?? {}
  const words = {
    connecting: 'connecting …',
    open: ready ? 'ready' : 'not ready',
    lost: 'connection lost; showing the last known state. Trying again …',
    locked: 'locked',
    full: 'eight pages are open already; close one',
  }
  const kind = link === 'open' ? (ready ? 'good' : 'bad') : link === 'connecting' ? 'quiet' : 'warn'
  const state = at('state')
  if (state.textContent !== words[link]) state.replaceChildren(words[link])
  state.className = kind
  const title = component === undefined ? 'Sallyport' : `Sallyport ${plain(component)} ${plain(version)}`
  at('title').replaceChildren(title)
  document.title = link === 'open' || link === 'connecting' ? title : `(!) ${title}`
}

function drawTabs() {
  const names = views().map(({ name }) => name)
  const drawn = [...tabs.children].map(tab => tab.getAttribute('data-name'))
  if (names.join() !== drawn.join()) {
    tabs.replaceChildren(
      ...names.map((name, index) => {
        const tab = element('button', { type: 'button', role: 'tab', 'data-name': name, 'aria-controls': 'view' }, name)
        tab.title = `Key ${index + 1}`
        tab.addEventListener('click', () => show(name))
        return tab
      }),
    )
  }
  for (const tab of tabs.children) {
    const selected = tab.getAttribute('data-name') === currentView().name
    tab.setAttribute('aria-selected', String(selected))
    tab.setAttribute('tabindex', selected ? '0' : '-1')
  }
}

function waiting() {
  if (link !== 'locked')
    return element(
      'p',
      { class: 'empty' },
      link === 'full' ? 'Too many pages are open.' : 'Waiting for the first snapshot …',
    )
  return element(
    'div',
    { class: 'empty' },
    element('p', {}, 'This page opens with a link that works once. Get one on the machine where this process runs:'),
    copyable('sallyport ui'),
  )
}

/** @param {readonly Row[]} all */
function table(all) {
  const { columns = [], detail } = currentView()
  const used = columns.filter(([, of]) => all.some(row => of(row) !== ''))
  const head = element('tr', {}, ...used.map(([name]) => element('th', { scope: 'col' }, name)))
  const body = all.map((row, index) => {
    const selected = index === chosen
    const made = element(
      'tr',
      { tabindex: selected || (chosen < 0 && index === 0) ? '0' : '-1', 'aria-selected': String(selected) },
      ...used.map(([, of, wide]) => element('td', wide ? { class: 'wide' } : {}, of(row))),
    )
    made.addEventListener('click', () => choose(index, !(selected && opened)))
    return made
  })
  const drawn = element(
    'div',
    { class: 'scroll' },
    element('table', { role: 'grid' }, element('thead', {}, head), element('tbody', {}, ...body)),
  )
  const row = opened ? (shownRow ?? all[chosen]) : undefined
  return row === undefined || detail === undefined ? drawn : element('div', {}, detail(row), drawn)
}

/** @param {string} name */
function show(name) {
  current = name
  choose(-1, false)
  history.replaceState(null, '', `#${name.toLowerCase()}`)
}

/**
 * @param {number} index
 * @param {boolean} open
 */
function choose(index, open) {
  chosen = Math.min(index, rows().length - 1)
  opened = open && chosen >= 0
  shownRow = opened ? rows()[chosen] : undefined
  draw()
  if (chosen >= 0) focusRow()
}

function focusRow() {
  const row = view.querySelectorAll('tbody tr')[Math.max(chosen, 0)]
  if (row instanceof HTMLElement) row.focus({ preventScroll: false })
}

/** @type {readonly (readonly [keys: readonly string[], about: string, act: () => void])[]} */
const KEYS = [
  [['j', 'ArrowDown'], 'next row', () => choose(Math.min(chosen + 1, rows().length - 1), opened)],
  [['k', 'ArrowUp'], 'previous row', () => choose(Math.max(chosen - 1, 0), opened)],
  [['Enter'], 'open or close the row', () => choose(Math.max(chosen, 0), !opened)],
  [['Escape'], 'back', () => choose(opened ? chosen : -1, false)],
  [['ArrowRight', 'l'], 'next view', () => turn(1)],
  [['ArrowLeft', 'h'], 'previous view', () => turn(-1)],
  [['c'], 'copy the command shown', () => view.querySelector('button')?.click()],
  [['?'], 'these keys', () => help()],
]

/** @param {number} by */
function turn(by) {
  const names = views().map(({ name }) => name)
  show(names[(names.indexOf(currentView().name) + by + names.length) % names.length])
}

const dialog = /** @type {HTMLDialogElement} */ (at('help'))

function help() {
  if (!dialog.open) dialog.showModal()
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return
  const isUsing = event.target instanceof Element && event.target.matches('a, button:not([role=tab])')
  if (isUsing && (event.key === 'Enter' || event.key === ' ')) return
  const number = Number(event.key)
  const act = KEYS.find(([keys]) => keys.includes(event.key))?.[2]
  const named = Number.isInteger(number) && number > 0 ? views()[number - 1] : undefined
  if (act === undefined && named === undefined) return
  event.preventDefault()
  if (named === undefined) act?.()
  else show(named.name)
})

at('help-button').addEventListener('click', help)
at('close-button').addEventListener('click', () => dialog.close())
at('keys').append(
  ...[...KEYS, /** @type {const} */ ([['1', '…', '6'], 'a view'])].flatMap(([keys, about]) => [
    element('dt', {}, keys.join(' ')),
    element('dd', {}, about),
  ]),
)

/** @param {string} text */
function take(text) {
  /** @type {Snapshot & { now: number }} */
  const fresh = JSON.parse(text)
  const last = snapshot?.history.at(-1)?.at ?? 0
  // Steps are 5 s apart, and their ends are accurate to a few ms.
  const added = (fresh.history ?? []).filter(({ at: end }) => end > last + 2500)
  const steps = fresh.history?.length > 2 ? fresh.history : [...(snapshot?.history ?? []), ...added]
  const key = chosen < 0 ? undefined : keyOf(rows()[chosen])
  const { status, failed = [], inspected } = fresh
  setClock(fresh.now)
  snapshot = { status, failed, inspected, history: steps.slice(-MAX_STEPS) }
  // New rows are inserted above the chosen one.
  if (key !== undefined) chosen = rows().findIndex(row => keyOf(row) === key)
  if (opened && chosen >= 0) shownRow = rows()[chosen]
  link = 'open'
  if (isBusy()) drawHead()
  else draw()
}

/** Tells a row from the others of its view. @param {Row | undefined} row */
function keyOf(row) {
  const { id, connection, at, event, session, requestId } = row ?? {}
  return at === undefined ? String(id ?? connection) : [at, event, session, requestId].join()
}

/**
 * Whether text is selected, or a button or link is pressed or has the keyboard's focus, which a redraw would undo. One that was
 * clicked keeps a focus that nobody sees.
 */
function isBusy() {
  const selects = getSelection()?.isCollapsed === false
  return selects || view.querySelector(':is(a, button):is(:focus-visible, :active)') !== null
}

async function follow() {
  const silence = new AbortController()
  let timer = 0
  const heard = () => {
    clearTimeout(timer)
    timer = setTimeout(() => silence.abort(), SILENCE_MS)
  }
  heard()
  try {
    await receive(silence.signal, heard)
  } finally {
    clearTimeout(timer)
  }
}

/**
 * @param {AbortSignal} signal
 * @param {() => void} heard called when something arrives
 */
async function receive(signal, heard) {
  const response = await fetch('/ui/events', { cache: 'no-store', signal })
  if (response.status === 401) link = 'locked'
  else if (response.status === 503) link = 'full'
  if (!response.ok || response.body === null) throw new Error(`status ${response.status}`)
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { done, value } = await reader.read()
    heard()
    if (done) return
    text += value
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      take(text.slice('data: '.length, end))
      text = text.slice(end + 2)
    }
  }
}

async function run() {
  await logIn()
  for (;;) {
    try {
      await follow()
    } catch {
      if (link === 'open' || link === 'connecting') link = 'lost'
    }
    if (link === 'open') link = 'connecting'
    if (link === 'locked') snapshot = undefined
    draw()
    await new Promise(resolve => {
      retry = () => resolve(undefined)
      setTimeout(resolve, RETRY_MS)
    })
  }
}

/** Ends the wait before the next attempt. */
let retry = () => {}

/** A fresh link may be opened in a tab that shows the page already. */
addEventListener('hashchange', async () => {
  await logIn()
  retry()
})

/** Uses up the link's code, and removes it from the address bar. */
async function logIn() {
  const fragment = location.hash.slice(1)
  const named = VIEWS.find(({ name }) => name.toLowerCase() === fragment)
  if (named !== undefined) current = named.name
  if (!/^[\w-]{22}$/.test(fragment)) return
  history.replaceState(null, '', '/')
  await fetch('/ui/login', { method: 'POST', body: fragment }).catch(() => undefined)
}

draw()
run()
