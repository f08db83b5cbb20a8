/** What a page in a real browser sees through the tunnel, from another origin. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocketServer } from 'ws'
import { createRouter, type Router } from '../../router/index.ts'
import { Browser } from '../support/devtools.ts'
import { needs } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { DOMAIN } from '../support/secrets.ts'

/** Runs in the page. Each entry is the outcome of one attempt, or the name of the error that it threw. */
async function tries(base: string, offline: string): Promise<Record<string, unknown>> {
  const attempt = async (work: () => Promise<unknown>) => {
    try {
      return await work()
    } catch (error) {
      return `${(error as Error).name}`
    }
  }
  const problem = async (url: string) => {
    const response = await fetch(url)
    const { code } = (await response.json()) as { code: string }
    return [response.status, code, response.headers.get('sallyport-error')]
  }
  const socket = () =>
    new Promise((resolve, reject) => {
      const ws = new WebSocket(`${base.replace('https', 'wss')}/app-proxy/echo`, 'echo.v1')
      ws.onopen = () => ws.send('hello')
      ws.onmessage = event => ws.close(1000, String(event.data))
      ws.onclose = event => resolve([ws.protocol, event.code, event.reason, event.wasClean])
      ws.onerror = () => reject(new Error('socket'))
    })
  const events = () =>
    new Promise((resolve, reject) => {
      const seen: string[] = []
      const source = new EventSource(`${base}/app-proxy/events`)
      source.onmessage = event => {
        seen.push(String(event.data))
        if (seen.length < 3) return void fetch(`${base}/app-proxy/next`)
        source.close()
        resolve(seen)
      }
      source.onerror = () => reject(new Error('events'))
    })
  return {
    json: await attempt(async () => (await fetch(`${base}/app-proxy/json`)).json()),
    protocol: await attempt(async () => {
      const entry = performance.getEntriesByName(`${base}/app-proxy/json`)[0]
      return (entry as PerformanceResourceTiming).nextHopProtocol
    }),
    preflighted: await attempt(async () => {
      const init = { method: 'PUT', headers: { 'content-type': 'application/json', 'x-access-token': 't' }, body: '{}' }
      return (await fetch(`${base}/app-proxy/put`, init)).text()
    }),
    refused: await attempt(() => problem(`${base}/nobody-there`)),
    refusedPreflight: await attempt(async () => (await fetch(`${base}/nobody-there`, { method: 'PUT' })).status),
    offline: await attempt(() => problem(`${offline}/app-proxy`)),
    cut: await attempt(async () => (await fetch(`${base}/app-proxy/cut`)).text()),
    socket: await attempt(socket),
    events: await attempt(events),
  }
}

describe.runIf(needs('chromium'))('a page in a real browser', () => {
  let ui: Server
  let app: Server
  let router: Router
  let pair: Pair
  let seen: Record<string, unknown>

  beforeAll(async () => {
    let told: (value: Record<string, unknown>) => void
    const outcome = new Promise<Record<string, unknown>>(resolve => {
      told = resolve
    })
    let page = ''
    ui = await listening(
      createServer((request, response) => {
        if (request.method !== 'POST') response.setHeader('content-type', 'text/html').end(page)
        else void text(request).then(body => told(JSON.parse(body)))
      }),
    )
    const origin = `http://127.0.0.1:${portOf(ui)}`
    app = await listening(appProxy(origin))
    const target = `http://127.0.0.1:${portOf(app)}`
    const cors = { origins: [origin], methods: ['GET', 'PUT'], credentials: true }
    router = createRouter({
      routes: {
        routes: [
          { name: 'app-proxy', match: { path: '/app-proxy' }, target, cors },
          { name: 'nobody-there', match: { path: '/nobody-there' }, target: 'http://127.0.0.1:1', cors },
        ],
      },
    })
    pair = await startPair({ target: router, server: { cors: { origins: [origin] } } })
    const base = `https://${pair.place.authority}`
    const offline = `https://${pair.placeOf('nobody').authority}`
    page = `<!doctype html><script type="module">
      const seen = await (${tries.toString()})(${JSON.stringify(base)}, ${JSON.stringify(offline)})
      await fetch('/seen', { method: 'POST', body: JSON.stringify(seen) })
    </script>`
    const browser = await Browser.open({ certificate: pair.secrets.server.cert, names: [`*.${DOMAIN}`] })
    try {
      await browser.page(origin)
      seen = await outcome
    } finally {
      await browser.close()
    }
  })

  afterAll(async () => {
    await pair?.stop()
    await router?.close()
    app?.closeAllConnections()
    app?.close()
    ui?.closeAllConnections()
    ui?.close()
  })

  it('reads an answer, over HTTP/2', () => {
    expect([seen.json, seen.protocol]).toEqual([{ hello: 'browser' }, 'h2'])
  })

  it('sends a request that needs a preflight, which the upstream answers', () => {
    expect(seen.preflighted).toBe('PUT {}')
  })

  it('can read our errors: status, code and header', () => {
    expect(seen.refused).toEqual([502, 'upstream-refused', 'upstream-refused'])
    expect(seen.offline).toEqual([503, 'runtime-offline', 'runtime-offline'])
  })

  it('gets past the preflight while the target is down', () => {
    expect(seen.refusedPreflight).toBe(502)
  })

  it('sees a broken body as broken', () => {
    expect(seen.cut).toBe('TypeError')
  })

  it('opens a WebSocket with its subprotocol, and both close it cleanly', () => {
    expect(seen.socket).toEqual(['echo.v1', 1000, 'hello', true])
  })

  it('receives each event as it arrives: the next one is sent only after it has the last', () => {
    expect(seen.events).toEqual(['1', '2', '3'])
  })
})

/** Stands in for App-Proxy, which handles its own CORS. */
function appProxy(origin: string): Server {
  let events: ServerResponse | undefined
  let sent = 0
  const server = createServer(async (request, response) => {
    response.setHeader('access-control-allow-origin', origin)
    response.setHeader('timing-allow-origin', '*')
    if (request.method === 'OPTIONS') {
      response.setHeader('access-control-allow-methods', 'PUT')
      response.setHeader('access-control-allow-headers', 'content-type, x-access-token')
      response.writeHead(204).end()
      return
    }
    switch (request.url) {
      case '/app-proxy/json':
        response.setHeader('content-type', 'application/json').end('{"hello":"browser"}')
        return
      case '/app-proxy/put':
        response.end(`${request.method} ${await text(request)}`)
        return
      case '/app-proxy/events':
        events = response.writeHead(200, { 'content-type': 'text/event-stream' })
        events.write(`data: ${++sent}\n\n`)
        return
      case '/app-proxy/next':
        events?.write(`data: ${++sent}\n\n`)
        response.end()
        return
      case '/app-proxy/cut':
        response.writeHead(200, { 'content-length': 100 }).write('half', () => response.destroy())
        return
      default:
        response.writeHead(404).end()
    }
  })
  const sockets = new WebSocketServer({ server, handleProtocols: offered => [...offered][0] ?? false })
  sockets.on('connection', ws => ws.on('message', (data, binary) => ws.send(data, { binary })))
  return server
}

async function listening(server: Server): Promise<Server> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port
}

async function text(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of request.setEncoding('utf8')) body += chunk
  return body
}
