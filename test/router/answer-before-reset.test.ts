/**
 * An upstream that answers, then resets the connection with most of the request unread: its answer reaches the caller.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import { type RouterService, serveRouter } from '../../router/index.ts'
import { makeSecrets, type Secrets } from '../support/secrets.ts'

const BODY_BYTES = 5_000_000
const PIECE = Buffer.alloc(50_000)
const ENDS: Record<string, (socket: Socket) => void> = {
  close: socket => socket.destroy(),
  reset: socket => resetSocket(socket),
  'half-close, then close': socket => socket.end(() => socket.destroy()),
}

let secrets: Secrets
let upstream: Server
let service: RouterService
beforeAll(async () => {
  secrets = await makeSecrets()
})
afterEach(async () => {
  await service.close({ graceMs: 0 })
  upstream.close()
})

/** Sends `answer` at the first bytes, reads no more, and ends in its own way. */
async function serve(protocol: string, answer: string, end: (socket: Socket) => void): Promise<void> {
  const take = (socket: Socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.pause()
      if (answer === '') end(socket)
      else socket.write(answer, () => end(socket))
    })
  }
  upstream =
    protocol === 'https'
      ? createTlsServer({ ...secrets.server, allowHalfOpen: true }, take)
      : createServer({ allowHalfOpen: true }, take)
  upstream.listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  const target = `${protocol}://localhost:${(upstream.address() as AddressInfo).port}`
  const tls = protocol === 'https' ? { tls: { ca: secrets.ca } } : {}
  const resolve = {
    [target.slice(target.indexOf('localhost'))]: `127.0.0.1:${(upstream.address() as AddressInfo).port}`,
  }
  service = await serveRouter({ port: 0, routes: { routes: [{ name: 'all', match: {}, target, ...tls }], resolve } })
}

/** Uploads until an answer arrives, and returns everything that the caller received. */
async function upload(framing: 'length' | 'chunked'): Promise<string> {
  const caller = connect(service.address.port, '127.0.0.1')
  let text = ''
  let sent = 0
  caller.on('error', () => {})
  caller.on('data', bytes => (text += bytes))
  const ended = new Promise(resolve => caller.once('close', resolve))
  caller.on('end', () => caller.destroy())
  const head = framing === 'length' ? `content-length: ${BODY_BYTES}` : 'transfer-encoding: chunked'
  caller.write(`POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${head}\r\n\r\n`)
  const pump = () => {
    while (sent < BODY_BYTES && !caller.destroyed) {
      sent += PIECE.length
      if (framing === 'chunked') caller.write(`${PIECE.length.toString(16)}\r\n`)
      const more = caller.write(PIECE)
      if (framing === 'chunked') caller.write('\r\n')
      if (!more) return void caller.once('drain', pump)
    }
    if (framing === 'chunked') caller.write('0\r\n\r\n')
  }
  pump()
  await ended
  return text
}

const head = (fields: string) => `HTTP/1.1 413 Content Too Large\r\n${fields}\r\n`
const ANSWER = `${head('content-length: 5\r\nconnection: close\r\n')}large`

describe.each(['http', 'https'])('over %s', protocol => {
  describe.each(Object.entries(ENDS))('ended by %s', (_, end) => {
    it.each(['length', 'chunked'] as const)('with a body by %s: the caller gets the 413', async framing => {
      await serve(protocol, ANSWER, end)
      for (let i = 0; i < 5; i++) {
        const text = await upload(framing)
        expect(text.slice(0, 12)).toBe('HTTP/1.1 413')
        expect(text).toContain('large')
      }
      expect(service.stats().upstreams.connections).toBe(0)
    })
  })
})

describe('an answer cut by a reset never counts as complete', () => {
  const reset = ENDS.reset!
  it.each([
    ['half a head', 'HTTP/1.1 413 Content'],
    ['nothing', ''],
    ['an informational response alone', 'HTTP/1.1 103 Early Hints\r\n\r\n'],
  ])('%s: upstream-broken', async (_, answer) => {
    await serve('http', answer, reset)
    expect((await upload('length')).toLowerCase()).toContain('sallyport-error: upstream-broken')
  })

  it.each([
    ['a body by length', `${head('content-length: 10\r\n')}large`],
    ['a body in chunks', `${head('transfer-encoding: chunked\r\n')}5\r\nlarge\r\n`],
    ['a body until close', `${head('')}large`],
  ])('%s: the answer is cut', async (_, answer) => {
    await serve('http', answer, reset)
    const text = await upload('length')
    // The head may have gone out by then: without the last chunk, or with fewer bytes than it announced.
    if (text.startsWith('HTTP/1.1 413')) expect(text).not.toMatch(/\r\n0\r\n\r\n$|content-length: 5\r/i)
    else expect(text.toLowerCase()).toMatch(/^$|sallyport-error: upstream-broken/)
  })
})
