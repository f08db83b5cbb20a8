// @module-tag slow
/** security.md, "One caller, one connection": pipelines, at the real edge. */
import type { Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import type { RawPeer } from '../protocol/http/http1/raw.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'
import { answering, HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

const UI = 'https://ui.example.com'
/** Requests, so many that the kernel alone cannot hold their answers. */
const REQUESTS = 25_000
const SMALL_REQUESTS = 100_000
const MOST_HELD_BYTES = 256 * 1024

const get = (path: string, host: string, fields = '') => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n`

/** Sockets of this process that were accepted on the port. */
function accepted(port: number): Socket[] {
  const handles = (process as unknown as { _getActiveHandles(): unknown[] })._getActiveHandles()
  return handles.filter(
    (one): one is Socket => (one as Socket).localPort === port && 'writableLength' in (one as Socket),
  )
}

/** Resolves once the number has stayed the same for a while, above 0. */
async function settled(count: () => number): Promise<number> {
  for (let same = 0, last = -1; same < 25; ) {
    await new Promise(resolve => setTimeout(resolve, 10))
    const now = count()
    same = now === last && now > 0 ? same + 1 : 0
    last = now
  }
  return count()
}

const CHEAP: [name: string, status: number, request: string, requests: number][] = [
  ['an unknown host', 404, get('/', 'nobody.example.org'), REQUESTS],
  ['a runtime that is offline', 503, get('/', `away.${DOMAIN}`), REQUESTS],
  ['a health check', 200, get('/healthz', 'any'), SMALL_REQUESTS],
  ['a health check by a wrong method', 405, get('/healthz', 'any').replace('GET', 'DELETE'), REQUESTS],
  [
    'a preflight for a runtime that is offline',
    204,
    get('/', `away.${DOMAIN}`, `Origin: ${UI}\r\nAccess-Control-Request-Method: GET\r\n`).replace('GET', 'OPTIONS'),
    REQUESTS,
  ],
]

describe('E15: answers that nobody reads', () => {
  test.each(CHEAP)(
    'E15: %s (%i): no further request is begun, little is held, and nothing is lost',
    async (_name, status, request, requests) => {
      let begun = 0
      const { port, call, othersUnhurt } = await startEdge(answering, {
        onExchange: () => begun++,
        healthPath: '/healthz',
        hold: { holdMs: 0 },
        cors: { origins: [UI] },
      })
      const caller = await call()
      caller.socket.pause()
      caller.send(request.repeat(requests))
      await settled(() => begun)
      const held = accepted(port).reduce((sum, socket) => sum + socket.writableLength, 0)
      expect(held).toBeLessThanOrEqual(MOST_HELD_BYTES)
      expect(begun).toBeLessThan(requests)
      await othersUnhurt()
      let answers = 0
      caller.socket.removeAllListeners('data')
      let rest = ''
      const begin = `HTTP/1.1 ${status} `
      caller.socket.on('data', chunk => {
        const text = rest + chunk.toString('latin1')
        answers += text.split(begin).length - 1
        rest = text.slice(-begin.length + 1)
      })
      caller.socket.resume()
      await eventually(() => expect(answers).toBe(requests))
    },
  )
})

describe('E17: requests that arrived whole before a FIN', () => {
  const post = (path: string, body: string) =>
    `POST ${path} HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  const paths = (count: number) => Array.from({ length: count }, (_, n) => `/${n}`)

  test.each([
    ['without bodies', 40, (path: string) => get(path, HOST)],
    ['with bodies', 40, (path: string) => post(path, 'x'.repeat(1000))],
    ['to nobody', 2000, (path: string) => get(path, 'nobody.example.org', `X: ${path}\r\n`)],
    ['more than is read ahead', 40, (path: string) => get(path, HOST, `X: ${'x'.repeat(8000)}\r\n`)],
  ])('E17: %s: all are answered, in order, and the connection ends cleanly', async (_name, count, request) => {
    // Each takes some time.
    const { call } = await startEdge(slowly(5))
    const caller = await call({ allowHalfOpen: true })
    caller.socket.end(paths(count).map(request).join(''))
    const text = await caller.close()
    expect(caller.error).toBeUndefined()
    const answered = [...text.matchAll(/answer to (\/\d+)/g)].map(([, path]) => path)
    if (text.includes('answer to')) expect(answered).toEqual(paths(count))
    expect(text.split('HTTP/1.1 ')).toHaveLength(count + 1)
  })

  test.each([
    ['a head that is not whole', get('/half', HOST).slice(0, -2)],
    ['a body that is not whole', post('/half', 'body').slice(0, -2)],
  ])('E17: %s behind them is not a request', async (_name, half) => {
    const { call, upstream } = await startEdge(slowly(5))
    const caller = await call({ allowHalfOpen: true })
    caller.socket.end(
      paths(5)
        .map(path => get(path, HOST))
        .join('') + half,
    )
    const text = await caller.close()
    expect([...text.matchAll(/answer to (\/\d)/g)].map(([, path]) => path)).toEqual(paths(5))
    expect(text).not.toContain('half')
    expect(upstream.text).not.toMatch(/body$/)
  })

  test('E17: an origin slower than halfCloseMs still answers a caller that closed its half', async () => {
    const { call } = await startEdge(slowly(4000))
    const caller = await call({ allowHalfOpen: true })
    caller.socket.end(get('/late', HOST))
    expect(await caller.close()).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*answer to \/late$/)
  })
})

/** Answers each request after this delay. */
function slowly(ms: number): (peer: RawPeer) => void {
  return peer => {
    let answered = 0
    peer.socket.on('data', () => {
      const targets = [...peer.text.matchAll(/(?:GET|POST) (\S+) HTTP\/1\.1\r\n[\s\S]*?\r\n\r\n/g)]
      for (const [, path] of targets.slice(answered)) {
        const body = `answer to ${path}`
        setTimeout(() => peer.send(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`), ms)
      }
      answered = targets.length
    })
  }
}
