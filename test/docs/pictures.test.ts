// @module-tag slow
/**
 * The pictures of docs/ that show a whole installation: real processes and load, one service that is down, a real Prometheus, and a
 * real browser. `PICTURES=docs npm test -- test/admin/page test/docs/pictures` makes them again, those of the page too. It takes
 * seven minutes, because the alert fires after five. Without PICTURES, it only has to be pending.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { useMachine } from '../cli/machine.ts'
import type { Running } from '../cli/process.ts'
import { sallyport } from '../cli/run.ts'
import { Browser } from '../support/devtools.ts'
import { needs } from '../support/needs.ts'
import { lastingPort } from '../support/ports.ts'
import { Prometheus } from '../support/prometheus.ts'
import { until } from '../support/until.ts'

const machine = useMachine()
const { file } = machine
const isKept = process.env.PICTURES !== undefined
const text = 'document.body.innerText'
const ESC = String.fromCharCode(27)

describe.runIf(needs('chromium', 'prometheus', 'script'))('pictures', () => {
  let browser: Browser
  let service: Server
  let port: number
  beforeAll(async () => {
    browser = await Browser.open()
    service = createServer((asked, response) => {
      asked.resume()
      response.writeHead(asked.url === '/favicon.ico' ? 404 : 200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ ok: true, items: ['one', 'two', 'three'] }))
    })
    // Nobody else gets this port while nothing of ours listens at it.
    port = await lastingPort()
    await once(service.listen(port, '127.0.0.1'), 'listening')
  })
  afterAll(async () => {
    service.close()
    service.closeAllConnections()
    await browser.close()
  })

  const startServer = () => machine.start(machine.serverArgs('--inbox', 'off', '--health.listen', '127.0.0.1:0'))
  /** With these settings, `sallyport client 3000` is all that one has to type. */
  const settings = async (server: Running) => {
    await machine.writeToken('token', { runtime: 'demo', ttl: '1h' })
    return {
      ...{ SALLYPORT_SERVER: `wss://${await server.address('control')}`, SALLYPORT_CA: file('ca.pem') },
      ...{ SALLYPORT_TOKEN_FILE: file('token'), SALLYPORT_ADMIN_LISTEN: '127.0.0.1:0' },
    }
  }
  const ask = async (server: Running, method: string, path: string, body?: object): Promise<number> => {
    const [host, port] = (await server.address('public')).split(':')
    const headers = {
      ...{ host: 'demo.tunnels.localhost', 'content-type': 'application/json', 'user-agent': 'example/1.0' },
      authorization: `Bearer ${crypto.randomUUID()}`,
    }
    const sent = request({ host, port, method, path, headers, agent: false })
    const [response] = await once(sent.end(body && JSON.stringify(body)), 'response')
    await once(response.resume(), 'end')
    return response.statusCode
  }
  /** By default, nothing listens where the orders are. */
  const routes = (ordersPort = 9) => {
    writeFileSync(
      file('routes.yaml'),
      `routes:
  - { name: app, match: { path: / }, target: "http://127.0.0.1:${port}" }
  - { name: orders, match: { path: /orders }, target: "http://127.0.0.1:${ordersPort}" }
`,
    )
    return ['--routes', file('routes.yaml')]
  }

  test('the inspector, with traffic', async () => {
    const server = startServer()
    const client = machine.start(['client', ...routes(), '--inspect', 'bodies'], await settings(server))
    await client.line(({ msg }) => msg === 'connected')
    for (const path of ['/', '/api/items?page=1', '/api/items?page=2&token=abc', '/favicon.ico', '/orders/17'])
      await ask(server, 'GET', path)
    const push = { ref: 'refs/heads/main', repository: 'example/app', access_token: crypto.randomUUID() }
    expect(await ask(server, 'POST', '/webhooks/argo-events/github', push)).toBe(200)
    let url: string | undefined
    // A client listens a moment before its own command knows of it.
    await until(async () => {
      const { code, out } = await sallyport(['ui', '--json'], { environment: machine.environment })
      const links = code === 0 ? (JSON.parse(out) as { component: string; url: string }[]) : []
      url = links.find(({ component }) => component === 'client')?.url
      return url !== undefined
    })
    const page = await browser.page(url!, { width: 900, height: 310 })
    await page.until(`${text}.includes('ready')`)
    await page.press('3')
    await page.value('document.body.style.zoom = 0.8')
    await page.until(`${text}.includes('[redacted:') && document.getAnimations().length === 0`)
    await page.keepPicture('inspector.png')
    await page.press('j')
    await page.press('Enter')
    await page.until(`${text}.includes('sallyport inspect replay')`)
    expect(await page.value(text)).toMatch(/authorization\s+Bearer \[redacted:/)
    await page.setScreen({ width: 620, height: 1000 })
    await page.keepPicture('inspector-request.png', '.detail')
    await page.close()
  })

  test('the terminal of a client', async () => {
    const server = startServer()
    await server.address('public')
    const line = `stty cols 96 rows 30 && exec '${process.execPath}' bin/sallyport.js client ${port}`
    const terminal = spawn('script', ['--quiet', '--return', '--flush', '--command', line, '/dev/null'], {
      env: { ...process.env, TERM: 'xterm', ...machine.environment, ...(await settings(server)) },
    })
    let raw = ''
    terminal.stdout.setEncoding('utf8').on('data', chunk => {
      raw += chunk
    })
    try {
      await until(() => raw.includes('page '))
      await ask(server, 'GET', '/')
      for (let n = 0; n < 12; n++) await ask(server, 'GET', '/api/items')
      await until(() => raw.includes('x12'))
      await ask(server, 'POST', '/webhooks/argo-events/github', {})
      await ask(server, 'GET', '/favicon.ico')
      service.close()
      service.closeAllConnections()
      await ask(server, 'GET', '/api/items')
      await until(() => raw.includes('Nothing is listening at the target'))
    } finally {
      terminal.kill('SIGKILL')
      service.listen(port, '127.0.0.1')
    }
    const page = await browser.page('about:blank', { width: 900, height: 600 })
    await page.value(`document.body.innerHTML = ${JSON.stringify(drawn(`$ sallyport client ${port}\r\n${raw}`))}`)
    expect(await page.value(text)).toContain('upstream refused')
    await page.keepPicture('terminal.png', 'pre')
    await page.close()
  })

  test('a failing route, in Prometheus: its requests by code, and its alert', { timeout: 900_000 }, async () => {
    const ordersPort = await lastingPort()
    const orders = createServer((_, response) => response.end('[]')).listen(ordersPort, '127.0.0.1')
    await once(orders, 'listening')
    const health = ['--health.listen', '127.0.0.1:0']
    const server = startServer()
    const client = machine.start(['client', ...routes(ordersPort), ...health], await settings(server))
    await client.line(({ msg }) => msg === 'connected')
    const jobs = {
      'sallyport-server': await server.address('health'),
      'sallyport-client': await client.address('health'),
    }
    const prometheus = await Prometheus.start(jobs, 'deploy/monitoring/rules.yaml')
    const paths = ['/', '/orders', '/api/items', '/', '/orders', '/favicon.ico', '/', '/api/items', '/orders', '/']
    /** Ten requests a second, until `query` has an answer. */
    const load = async (query: string) => {
      do {
        for (const path of paths) {
          await ask(server, 'GET', path)
          await new Promise(resolve => setTimeout(resolve, 100))
        }
      } while ((await prometheus.query(query)).length === 0)
    }
    try {
      await load(`sum(sallyport_exchanges_total{job="sallyport-server"}) > ${isKept ? 600 : 10}`)
      orders.close()
      orders.closeAllConnections()
      const state = isKept ? 'firing' : 'pending'
      await load(`count(ALERTS{alertname="SallyportFailures", alertstate="${state}"}) == 2`)

      const graph =
        'sum by (http_response_status_code, error_type) (rate(sallyport_exchanges_total{job="sallyport-server"}[30s]))'
      const asked = new URLSearchParams({
        'g0.expr': graph,
        'g0.tab': '0',
        'g0.range_input': '6m',
        'g0.step_input': '2',
      })
      const page = await browser.page(`${prometheus.url}/classic/graph?${asked}`, { width: 800, height: 800 })
      await page.until(`${text}.includes('error_type="upstream-refused"')`)
      await page.keepPicture('monitoring-graph.png', '.graph_container')
      await page.go(`${prometheus.url}/classic/alerts`)
      await page.until(`document.querySelector('.alert-danger, .alert-warning')`)
      await page.click('.alert-danger, .alert-warning')
      await page.value(`document.getElementById('inactiveAlerts').click(), document.body.style.zoom = 0.8`)
      await page.until(`${text}.includes('job="sallyport-client"')`)
      expect(await page.value(text)).toContain('SallyportFailures (2 active)')
      await page.keepPicture('monitoring-alerts.png', '#alertsTable')
      await page.close()
    } finally {
      orders.close()
      await prometheus.stop()
    }
  })
})

/** What a terminal shows of `raw`, as HTML, without the code of the link: its writer colours text, and replaces lines at the end. */
function drawn(raw: string): string {
  const [first, ...rest] = raw
    .replaceAll('\r\n', '\n')
    .replace(/#\S+/, '#...')
    .split(new RegExp(`${ESC}\\[(\\d+)A\\r${ESC}\\[J`))
  const lines = first!.split('\n').slice(0, -1)
  for (let index = 0; index < rest.length; index += 2)
    lines.splice(lines.length - Number(rest[index]), Infinity, ...rest[index + 1]!.split('\n').slice(0, -1))
  const escaped = lines.join('\n').replace(/[<&]/g, found => `&#${found.charCodeAt(0)};`)
  const styles: Record<string, string> = {
    ...{ 1: 'font-weight: bold', 2: 'opacity: 0.6' },
    ...{ 31: 'color: #ff7b72', 32: 'color: #7ee787', 33: 'color: #e3b341', 36: 'color: #76e3ea' },
  }
  const coloured = escaped.replaceAll(new RegExp(`${ESC}\\[(\\d+)m`, 'g'), (_, code: string) =>
    code in styles ? `<span style="${styles[code]}">` : '</span>',
  )
  const look = 'display: inline-block; padding: 12px; background: #14171a; color: #e6e9ec; font: 13px/1.4 monospace'
  return `<pre style="${look}">${coloured}</pre>`
}
