// @module-tag slow
/** Somebody's webhook fails. The pages of server and client alone show why: each fault is real, in real processes. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Browser, type BrowserPage } from '../support/devtools.ts'
import { needs } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { Running } from './process.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine

describe.runIf(needs('chromium'))('the page shows why a webhook fails', () => {
  let browser: Browser
  let slow: Server
  let server: Running
  beforeAll(async () => {
    browser = await Browser.open()
    slow = createServer(() => {}).listen(0, '127.0.0.1')
    await once(slow, 'listening')
    await sallyport(['keys', 'create', '--out', file('other')])
  })
  afterAll(async () => {
    slow.closeAllConnections()
    slow.close()
    await browser.close()
  })
  beforeEach(async () => {
    await machine.writeToken('token', { runtime: 'demo', ttl: '1h' })
  })
  afterEach(() => {
    browser.complaints.length = 0
  })

  const startServer = async (...more: string[]) => {
    server = machine.start(machine.serverArgs('--inbox', 'off', ...more))
    await server.line(({ name }) => name === 'control')
  }
  const startClient = async (...more: string[]) => {
    const url = `wss://${await server.address('control')}`
    return machine.start([
      ...['client', '--server', url, '--ca', file('ca.pem'), '--token.file', file('token'), ...ADMIN, ...more],
    ])
  }
  const connected = (client: Running) => client.line(({ msg }) => msg === 'connected')
  const post = async () => {
    const [host, port] = (await server.address('public')).split(':')
    const headers = { host: 'demo.tunnels.localhost', 'content-type': 'application/json' }
    const sent = request({ host, port, path: '/webhooks/argo-events/github', method: 'POST', headers })
    const [response] = await once(sent.end('{}'), 'response')
    response.resume()
    return response.statusCode as number
  }
  /** As the operator does: asks for a link, and opens it. */
  const open = async (component: string): Promise<BrowserPage> => {
    let url: string | undefined
    // A component listens a moment before its own command knows of it, and a busy one does not answer at once.
    await until(async () => {
      const { code, out } = await sallyport(['ui', '--json'], { environment: machine.environment })
      if (code !== 0) return false
      const links = JSON.parse(out) as { component: string; url: string }[]
      url = links.find(link => link.component === component)?.url
      return url !== undefined
    })
    const page = await browser.page(url!)
    await page.until('document.getElementById("state").innerText.endsWith("ready")')
    return page
  }
  const textOf = async (page: BrowserPage, element: string): Promise<string> => {
    const text = await page.value<string>(`${element}.innerText`)
    await page.close()
    return text
  }
  const firstFailure = async (component: string): Promise<string> => {
    const page = await open(component)
    await page.press('2')
    await page.press('j')
    await page.press('Enter')
    await page.until('document.querySelector(".detail")')
    return await textOf(page, 'document.querySelector(".detail")')
  }
  const events = async (component: string, view: string): Promise<string> => {
    const page = await open(component)
    await page.value(`document.querySelector('[data-name=${view}]').click()`)
    return await textOf(page, 'document.getElementById("view")')
  }
  const routes = (target: string, path = '/webhooks/{namespace}/{name}') => {
    const limits = 'timeouts: { headMs: 300 }'
    writeFileSync(
      file('routes.yaml'),
      `routes:\n  - { name: hooks, match: { path: "${path}" }, target: "${target}", ${limits} }\n`,
    )
    return ['--routes', file('routes.yaml')]
  }
  const slowUrl = () => `http://127.0.0.1:${(slow.address() as AddressInfo).port}`

  test('the target is down', async () => {
    await startServer()
    await connected(await startClient('--target', 'http://127.0.0.1:9'))
    expect(await post()).toBe(502)
    const line = await firstFailure('client')
    expect(line).toContain('Nothing is listening at the target: start the service, or give another target.')
    expect(await firstFailure('server')).toContain('upstream-refused')
  })

  test('the target of a router is down', async () => {
    const router = machine.start(['router', '--listen', '127.0.0.1:0', ...routes('http://127.0.0.1:9'), ...ADMIN])
    const url = `http://${await router.address('router')}/webhooks/argo-events/github`
    expect((await fetch(url, { method: 'POST' })).status).toBe(502)
    expect(await firstFailure('router')).toContain('upstream-refused')
    expect(browser.complaints).toEqual([])
  })

  test('no route matches', async () => {
    await startServer()
    await connected(await startClient(...routes(slowUrl(), '/hooks/{name}')))
    expect(await post()).toBe(404)
    expect(await firstFailure('client')).toContain('sallyport route test')
  })

  test('the upstream is slow', async () => {
    await startServer()
    await connected(await startClient(...routes(slowUrl())))
    expect(await post()).toBe(504)
    const line = await firstFailure('client')
    expect(line).toContain('upstream-timeout')
    expect(line).toContain('The target is slow or hangs. Its own log may say why.')
  })

  test('the upstream is slower than its sender waits', async () => {
    const all = ['--log.access', 'all']
    await startServer(...all)
    const client = await startClient('--target', slowUrl(), ...all)
    await connected(client)
    const [host, port] = (await server.address('public')).split(':')
    const sent = request({ host, port, path: '/hooks', method: 'POST', headers: { host: 'demo.tunnels.localhost' } })
    sent.on('error', () => {}).end('{}')
    await once(slow, 'request')
    sent.socket!.resetAndDestroy()
    for (const [name, component] of Object.entries({ client, server })) {
      await component.line(({ msg }) => msg === 'exchange')
      expect(await firstFailure(name)).toContain('It left before an answer began.')
    }
  })

  test('the token has expired', async () => {
    await startServer('--auth.clock-tolerance', '0s')
    await machine.writeToken('token', { runtime: 'demo', ttl: '1s' })
    await new Promise(resolve => setTimeout(resolve, 1100))
    const client = await startClient('--target', slowUrl())
    await client.address('admin')
    await until(async () => (await events('client', 'Sessions')).includes('expired'))
    expect(await events('server', 'Events')).toMatch(/handshake refused.*expired/)
    const overview = await events('client', 'Overview')
    expect(overview).toMatch(/token expired\s+\d+ s ago/)
    expect(overview).toMatch(/Not connected: refused \(401.*your token expired/)
  })

  test('the inbox is full', async () => {
    const inbox = ['--inbox', `sqlite:${file('inbox.db')}`, '--inbox.disk-free', '60000GiB', '--inbox.plaintext']
    server = machine.start(machine.serverArgs(...inbox))
    const path = '{ path: "/webhooks/{namespace}/{name}", methods: [POST] }'
    const route = `{ name: hooks, match: ${path}, target: "${slowUrl()}", inbox: { mode: always } }`
    writeFileSync(file('routes.yaml'), `routes:\n  - ${route}\n`)
    await connected(await startClient('--routes', file('routes.yaml')))
    expect(await post()).toBe(503)
    const line = await firstFailure('server')
    expect(line).toContain('inbox-full')
    expect(line).toContain('`sallyport inbox list` shows what fills the inbox.')
  })
})
