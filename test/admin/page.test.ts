/**
 * The page in a real browser: what it shows, by keyboard, in each state, and what hostile text can do there: nothing.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { listenAdmin, Traffic } from '../../admin/index.ts'
import { ADVICE } from '../../cli/terminal/advice.ts'
import { RingInspector } from '../../client/inspect/inspector.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { BODY_UNKNOWN } from '../../protocol/exchange.ts'
import { Browser, type BrowserPage } from '../support/devtools.ts'
import { EXCHANGE, ends } from '../support/ends.ts'
import { needs } from '../support/needs.ts'
import { exchange } from './exchange.ts'

const PAYLOADS = [
  '<script>window.hurt=1</script>',
  '<img src=x onerror=window.hurt=1>',
  '"><svg onload=window.hurt=1>',
  "'-window.hurt=1-'",
  '</td></tr></table><iframe srcdoc="<script>parent.hurt=1</script>">',
  'javascript:window.hurt=1',
  '{{constructor.constructor("window.hurt=1")()}}',
  `\${window.hurt=1}`,
  '<a href="javascript:window.hurt=1" autofocus onfocus=window.hurt=1>x</a>',
  '\u202egnp.exe\u0000\u001b[31m',
  '<style>*{display:none}</style>',
  '<base href="https://attacker.example/"><form action=//attacker.example><button formaction=javascript:hurt=1>',
]

const WEBHOOK = { method: 'POST', host: 'demo.tunnels.example.com', path: '/webhooks/argo-events/github' }
const REFUSED = { status: 502, code: 'upstream-refused' }

/** No work of an inspector takes time here, however busy the machine is. */
const standing = () => 0

type Listener = Awaited<ReturnType<typeof listenAdmin>>
const text = 'document.body.innerText'

/** One exchange that an inspector sees, with `payload` wherever a caller or a target may write. */
function inspected(inspector: RingInspector, payload: string): void {
  const { front, next, ...both } = ends()
  const handler = inspector.layer((request, response) => {
    const sink = next(request, response)
    const headers = ['content-type', 'text/html', 'x-answer', payload]
    response.responseHead({ status: 200, headers, bodyBytes: BODY_UNKNOWN })
    response.responseData(Buffer.from(payload))
    response.responseEnd([])
    return sink
  })
  const body = Buffer.from(JSON.stringify({ text: payload }))
  const headers = ['content-type', 'application/json', 'x-asked', payload]
  const sink = handler({ ...EXCHANGE, method: 'POST', path: `/${payload}`, headers, bodyBytes: body.length }, front)
  sink.requestData(body)
  sink.requestEnd([])
  expect(both.events).toContain('responseEnd')
}

describe.runIf(needs('chromium'))('the page', () => {
  let browser: Browser
  let admin: Listener
  let page: BrowserPage
  let traffic: Traffic
  let status: Record<string, unknown>
  let now: number
  let inspector: RingInspector | undefined

  beforeAll(async () => {
    browser = await Browser.open({ names: ['attacker.example'] })
  })
  afterAll(() => browser.close())
  beforeEach(async () => {
    browser.complaints.length = 0
    now = 1_000_000
    traffic = new Traffic(() => now)
    inspector = undefined
    status = server()
    admin = await listen(0)
  })
  afterEach(async () => {
    await page.close()
    await admin.close()
    inspector?.close()
  })

  const listen = (port: number) => {
    const source = {
      ready: () => true,
      status: () => status,
      metrics: async () => ({ contentType: 'text/plain', text: '' }),
      advice: ADVICE,
      get inspector() {
        return inspector
      },
      get traffic() {
        return traffic
      },
    }
    return listenAdmin({ host: '127.0.0.1', port, source, token: () => 'a-token-of-this-test', logger: noLogger })
  }
  const url = () => `http://127.0.0.1:${admin.address.port}/`
  const openPage = async (screen?: Parameters<Browser['page']>[1]) => {
    page = await browser.page(`${url()}#${admin.code()}`, screen)
    await page.until(`${text}.includes('ready')`)
  }

  function server(): Record<string, unknown> {
    const open = Array.from({ length: 3 }, (_, index) => ({
      ...{ id: `0${index}66e9d5-d00d`, runtime: 'demo', state: 'open', active: true, rttMs: 2.1, streams: index },
      ...{ connectedSince: new Date(Date.now() - 3_600_000).toISOString(), address: '192.0.2.7', bytesIn: 1e6 },
      ...{ tokenEnds: new Date(Date.now() + 3_600_000).toISOString(), bytesOut: 5e7 },
    }))
    return {
      ...{
        component: 'server',
        version: '0.1.0',
        ready: true,
        startedAt: new Date(Date.now() - 86_400_000).toISOString(),
      },
      ...{ runtimes: 1, sessions: 3, exchanges: 4, held: 0, bufferedBytes: 1234, openSessions: open },
      inbox: {
        messages: { waiting: 5, dead: 1, delivered: 9 },
        bytes: 3890,
        oldestSeconds: 7,
        dead: { expired: 1 },
        paused: [],
      },
      recent: [{ at: new Date().toISOString(), event: 'session ready', runtime: 'demo', session: 'abc', reason: 'r' }],
    }
  }

  function load(): void {
    const one = exchange({ ...WEBHOOK, route: 'app' })
    for (let step = 0, all = 0; step < 170; step++) {
      const requests = 20 + (step % 40)
      for (let count = 0; count < requests; count++) traffic.note(one)
      all += requests
      traffic.count({ bodyBytesIn: all * 900, bodyBytesOut: all * 40_000 })
      now += 5000
    }
  }

  test('a router, whose connections are a number, is shown in each of its views', async () => {
    status = {
      ...{ component: 'router', version: '0.1.0', ready: true, startedAt: new Date().toISOString() },
      ...{ active: 0, total: 1, connections: 0, routes: 3, address: '127.0.0.1:8081' },
    }
    traffic.note(exchange({ ...WEBHOOK, ...REFUSED }))
    await openPage()
    await page.until(`/routes\\s+3/.test(${text})`)
    await page.press('2')
    await page.until(`${text}.includes('upstream-refused')`)
    expect(browser.complaints).toEqual([])
  })

  test('what a view cannot show is told there, and the page goes on', async () => {
    status = { ...server(), openSessions: [null] }
    traffic.note(exchange({ ...WEBHOOK, ...REFUSED }))
    await openPage()
    await page.value(`document.querySelector('[data-name=Sessions]').click()`)
    await page.until(`${text}.includes('This view cannot be shown')`)
    await page.press('2')
    await page.until(`${text}.includes('upstream-refused')`)
  })

  test('shows what is running, and its code is used up and removed from the address', async () => {
    load()
    await openPage()
    expect(await page.value('location.href')).toBe(url())
    expect(await page.value('document.title')).toBe('Sallyport server 0.1.0')
    expect(await page.value('document.querySelectorAll("svg path.first[d]").length')).toBe(3)
    expect(await page.value(text)).toMatch(/webhooks waiting\s+5/)
    expect(browser.complaints).toEqual([])
  })

  test('a client without a session says why, and that its token has expired', async () => {
    const [{ version, startedAt }, tokenEnds] = [server(), new Date(Date.now() - 90_000).toISOString()]
    const connections = [{ connection: 0, attempts: 3, lastError: 'refused (401): your token expired' }]
    const client = { component: 'client', version, startedAt, ready: false, active: true, runtime: 'demo' }
    status = { ...client, sessions: [], connections, tokenEnds }
    await openPage()
    expect(await page.value(text)).toContain('Not connected: refused (401): your token expired')
    expect(await page.value(text)).toMatch(/token expired\s+1 min ago/)
    expect(await page.value(text)).toMatch(/traffic\s+none/)
    await page.press('2')
    await page.until(`${text}.includes('No request has failed')`)
    expect(await page.value(text)).toContain('Not connected: refused (401): your token expired')
    status = { ...client, sessions: [{ connection: 0, state: 'draining' }], connections }
    await page.press('1')
    await page.until(`/traffic\\s+active/.test(${text})`)
    expect(await page.value(text)).not.toContain('Not connected')
  })

  test('what happened just now is at the right edge of a chart', async () => {
    now = 0
    traffic = new Traffic(() => now)
    traffic.note(exchange(WEBHOOK))
    now += 10_000
    await openPage()
    const first = await page.value<string>('document.querySelector("svg path.first").getAttribute("d")')
    const across = [...first.matchAll(/[ML]([\d.]+) /g)].map(([, x]) => Number(x))
    expect(across).toEqual([298.3, 300])
  })

  test('every view and row can be reached with the keyboard', async () => {
    traffic.note(exchange(REFUSED))
    await openPage()
    for (const [key, name] of [
      ['2', 'Failures'],
      ['3', 'Sessions'],
      ['4', 'Inbox'],
      ['5', 'Events'],
      ['1', 'Overview'],
    ]) {
      await page.press(key!)
      await page.until(`document.querySelector('[aria-selected=true]').innerText === '${name}'`)
    }
    await page.press('ArrowRight')
    await page.press('j')
    await page.press('Enter')
    await page.until(`document.querySelector('.detail')?.innerText.includes('Nothing is listening at the target')`)
    await page.press('Escape')
    await page.until(`document.querySelector('.detail') === null`)
    await page.press('?')
    await page.until(`document.getElementById('help').open`)
    expect(await page.value(text)).toContain('next row')
    await page.value(`document.getElementById('close-button').click()`)
    await page.press('3')
    await page.press('j')
    await page.press('j')
    expect(await page.value(`document.activeElement.cells[0].innerText`)).toBe('0166e9d5')
  })

  test('empty, locked, full and lost are shown, and a lost page recovers', async () => {
    status = { ...server(), openSessions: [], recent: [] }
    await openPage()
    for (const [key, said] of [
      ['2', 'No request has failed'],
      ['3', 'No session is open'],
      ['5', 'No session has opened'],
    ]) {
      await page.press(key!)
      await page.until(`${text}.includes('${said}')`)
    }
    const { port } = admin.address
    await admin.close()
    await page.until(`document.getElementById('state').innerText.startsWith('connection lost')`)
    admin = await listen(port)
    await page.until(`${text}.includes('sallyport ui')`)
    expect(await page.value(`document.getElementById('state').innerText`)).toBe('locked')
    await page.go(`${url()}#${admin.code()}`)
    await page.until(`document.getElementById('state').innerText === 'ready'`)
  })

  test('a component that is stuck, or out of reach, is shown as lost, and comes back', { tags: ['slow'] }, async () => {
    const way = createServer(caller => {
      const component = connect(admin.address.port, '127.0.0.1')
      for (const socket of [caller, component]) socket.on('error', () => {})
      caller.pipe(component)
      component.on('data', data => isOpen && caller.write(data))
      caller.on('close', () => component.destroy())
    }).listen(0, '127.0.0.1')
    await once(way, 'listening')
    let isOpen = true
    page = await browser.page(`http://127.0.0.1:${(way.address() as AddressInfo).port}/#${admin.code()}`)
    const state = `document.getElementById('state').innerText`
    await page.until(`${state} === 'ready'`)
    isOpen = false
    await page.until(`${state}.startsWith('connection lost')`)
    isOpen = true
    await page.until(`${state} === 'ready'`)
    way.close()
  })

  test('goes on after a button was clicked', async () => {
    await openPage()
    await page.press('4')
    await page.click('.command button')
    await page.until(`document.querySelector('.command button').innerText !== 'Copy'`)
    status = { ...server(), inbox: { messages: { waiting: 0, dead: 0, delivered: 15 }, bytes: 0, paused: [] } }
    await page.until(`${text}.includes('none waits')`)
  })

  test('what happened most recently does not change which event is open', async () => {
    await openPage()
    await page.press('5')
    await page.press('j')
    await page.press('Enter')
    const shown = `document.querySelector('.detail').innerText`
    const before = await page.value(shown)
    const newer = { at: new Date(Date.now() + 1000).toISOString(), event: 'session ended', session: 'abc', reason: 'x' }
    status = { ...server(), recent: [newer, ...(status.recent as object[])] }
    await page.until(`document.querySelectorAll('tbody tr').length === 2`)
    expect(await page.value(shown)).toBe(before)
  })

  test('an open request shows what it has sent since, and its body can be saved by keyboard', async () => {
    inspector = new RingInspector('bodies', noLogger, standing)
    const { front, next } = ends()
    let send = (_: string) => {}
    const handler = inspector.layer((request, response) => {
      const head = { status: 200, headers: ['content-type', 'text/event-stream'], bodyBytes: BODY_UNKNOWN }
      response.responseHead(head)
      send = data => response.responseData(Buffer.from(`data: ${data}\n\n`))
      return next(request, response)
    })
    const sink = handler({ ...EXCHANGE, method: 'POST', path: '/events', bodyBytes: 4 }, front)
    sink.requestData(Buffer.from('body'))
    sink.requestEnd([])
    await openPage()
    await page.press('3')
    await page.press('j')
    await page.press('Enter')
    const shown = `document.querySelector('.detail').innerText`
    await page.until(`${shown}.includes('Save the body')`)
    await page.value(`addEventListener('keydown', event => { window.prevented = event.defaultPrevented })`)
    await page.value(`document.querySelector('.detail a').focus()`)
    await page.press('Enter')
    expect(await page.value('window.prevented')).toBe(false)
    await page.value(`document.activeElement.blur()`)
    send('one')
    await page.until(`${shown}.includes('one')`)
    send('two')
    await page.until(`${shown}.includes('two')`)
  })

  test('a delivery from the inbox is named by its route and its webhook', async () => {
    traffic.note(
      exchange({ ...REFUSED, method: 'POST', route: 'hooks', inboxId: '0166e9d5-1111-4222-8333-444455556666' }),
    )
    await openPage()
    await page.press('2')
    await page.press('j')
    await page.press('Enter')
    await page.until(`document.querySelector('.detail') !== null`)
    expect(await page.value(text)).toContain('inbox hooks 0166e9d5')
    expect(await page.value(text)).toContain("sallyport inbox show '0166e9d5-1111-4222-8333-444455556666'")
    expect(await page.value(text)).not.toContain('https://h/')
  })

  test("times are told by the component's clock, whatever this machine's says", async () => {
    page = await browser.page('about:blank')
    const source = 'const real = Date.now; Date.now = () => real() + 7_200_000'
    await page.send('Page.addScriptToEvaluateOnNewDocument', { source })
    traffic.note({
      ...{ requestId: 'r', runtime: 'demo', route: undefined, session: undefined, method: 'GET', host: 'h', path: '/' },
      ...{
        caller: '',
        status: 502,
        code: 'no-route',
        cut: false,
        durationMs: 3,
        bytesIn: 0,
        bytesOut: 0,
        upgrade: false,
      },
    })
    await page.go(`${url()}#${admin.code()}`)
    await page.until(`${text}.includes('Last failure')`)
    await page.press('3')
    await page.until(`${text}.toLowerCase().includes('token')`)
    expect(await page.value(text)).toMatch(/\tin \d+ (min|h)/)
  })

  test("A4: callers' text stays text, wherever it comes from", async () => {
    const evil = (index: number) => PAYLOADS[index % PAYLOADS.length]!
    PAYLOADS.forEach((payload, index) => {
      const names = { requestId: payload, runtime: evil(index + 1), route: evil(index + 2), host: evil(index + 3) }
      traffic.note(exchange({ ...names, method: payload, path: `/${payload}`, status: 502, code: 'no-route' }))
    })
    const rows = PAYLOADS.map(payload => ({ id: payload, runtime: payload, state: payload, address: payload }))
    const recent = PAYLOADS.map(payload => ({ at: payload, event: payload, runtime: payload, reason: payload }))
    const inbox = { messages: { waiting: PAYLOADS[1] }, paused: PAYLOADS, store: { open: false, problem: PAYLOADS[2] } }
    status = { ...server(), version: PAYLOADS[0], openSessions: rows, recent, inbox, runtime: PAYLOADS[3] }
    await openPage()
    for (const key of ['1', '2', '3', '4', '5']) {
      await page.press(key)
      await page.press('j')
      for (let row = 0; row < PAYLOADS.length; row++) {
        await page.press('Enter')
        await page.press('Enter')
        await page.press('j')
      }
    }
    await page.press('2')
    await page.press('j')
    await page.press('Enter')
    await page.until(`${text}.includes('<style>')`)
    const made = 'document.querySelectorAll("script:not([src]),iframe,style,base,form,a,img").length'
    expect(await page.value(`[typeof window.hurt, ${made}]`)).toEqual(['undefined', 0])
    expect(await page.value(text)).not.toMatch(/(?![\n\t])\p{Cc}|\p{Cf}/u)
    expect(browser.complaints).toEqual([])
  })

  test("A4: an inspector's requests: their text stays text, by keyboard, and bodies are only saved", async () => {
    inspector = new RingInspector('bodies', noLogger, standing)
    for (const payload of PAYLOADS) inspected(inspector, payload)
    await openPage()
    await page.press('3')
    await page.until(`document.querySelectorAll('tbody tr').length === ${PAYLOADS.length}`)
    for (let row = 0; row < PAYLOADS.length; row++) {
      await page.press('j')
      if (row === 0) await page.press('Enter')
      else await page.press('Enter').then(() => page.press('Enter'))
      await page.until(`document.querySelector('.detail')?.innerText.includes('sallyport inspect replay')`)
    }
    const made = 'document.querySelectorAll("script:not([src]),iframe,style,base,form,img").length'
    expect(await page.value(`[typeof window.hurt, ${made}]`)).toEqual(['undefined', 0])
    expect(await page.value(text)).not.toMatch(/(?![\n\t])\p{Cc}|\p{Cf}/u)
    // The chosen row stays chosen when another arrives.
    const chosen = `document.querySelector('[aria-selected=true][tabindex]:not([role=tab])').cells[4].innerText`
    const before = await page.value(chosen)
    inspected(inspector, 'newer')
    await page.until(`document.querySelectorAll('tbody tr').length === ${PAYLOADS.length + 1}`)
    expect(await page.value(chosen)).toBe(before)
    const saved = `fetch(document.querySelector('.detail a').href).then(async answer => [answer.headers.get('content-type'),
      answer.headers.get('content-disposition'), answer.headers.get('x-content-type-options'), await answer.text()])`
    expect(await page.value(saved)).toEqual([
      'application/octet-stream',
      expect.stringMatching(/^attachment; filename="[\w-]+-request\.txt"$/),
      'nosniff',
      `{"text":${JSON.stringify(PAYLOADS[0])}}`,
    ])
    expect(browser.complaints).toEqual([])
  })

  test('A4: another site gets nothing: neither by its own name for our address, nor by a request of its own', async () => {
    await openPage()
    const { port } = admin.address
    const rebound = await browser.page(`http://attacker.example:${port}/`)
    await rebound.until(`${text}.includes('this Host needs the admin token')`)
    expect(await rebound.value(`fetch('/ui/events').then(answer => answer.status, () => 'blocked')`)).toBe('blocked')
    const other = await browser.page(`http://localhost:${port}/ui/icon.svg`)
    await other.until('document.readyState === "complete"')
    const tried = `fetch('${url()}ui/events', { credentials: 'include' }).then(answer => answer.status, () => 'blocked')`
    expect(await other.value(tried)).toBe('blocked')
  })

  test.each([
    ['light', '1', { width: 1200, height: 800 }],
    ['dark', '2', { width: 1200, height: 800, dark: true }],
    ['phone', '1', { width: 390, height: 844, mobile: true }],
  ] as const)(
    'an accessibility checker finds nothing (%s), and nothing is wider than the screen',
    async (name, kept, screen) => {
      load()
      traffic.note(exchange({ ...WEBHOOK, ...REFUSED }))
      inspector = new RingInspector('bodies', noLogger, standing)
      inspected(inspector, 'webhooks/argo-events/github')
      await openPage(screen)
      for (const key of ['1', '2', '3', '4', '5', '6']) {
        await page.press(key)
        if (key === '2' || key === '3') await page.press('Enter')
        if (key === '3') await page.until(`${text}.includes('sallyport inspect replay')`)
        await page.value(readFileSync(resolve('node_modules/axe-core/axe.min.js'), 'utf8'))
        const found = `axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ' ' + nodes[0].html))`
        expect(await page.value(found)).toEqual([])
        expect(await page.value('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
        if (key === kept) await page.keepPicture(`page-${name}.png`)
      }
    },
  )
})
