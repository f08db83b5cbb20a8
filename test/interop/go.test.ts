/** A tunnel client in Go, built from protocol/wire/SPEC.md on hashicorp/yamux, serves requests through our server. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import type { Server } from '../../server/server.ts'
import { call, DOMAIN, event, makeWorld, startServer, token } from '../server/fixture.ts'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'

const SIZE = 100_000_000
const HOST = `go.${DOMAIN}`

/** Bytes that repeat with a period of 251, as the peer's download does in each chunk of 100,000. */
const CHUNK = Buffer.from(Array.from({ length: 100_000 }, (_, i) => i % 251))

function startExchange(server: Server, method: string, path: string, headers: Record<string, string> = {}) {
  const { host, port } = server.publicAddress!
  const request = httpRequest({ host, port, path, method, agent: false, headers: { host: HOST, ...headers } })
  const response = once(request, 'response').then(([message]) => message as IncomingMessage)
  return { request, response }
}

async function digest(response: IncomingMessage): Promise<{ bytes: number; sum: string }> {
  const hash = createHash('sha256')
  let bytes = 0
  for await (const chunk of response) {
    bytes += chunk.length
    hash.update(chunk)
  }
  return { bytes, sum: hash.digest('hex') }
}

async function write(request: ReturnType<typeof startExchange>['request'], bytes: number): Promise<string> {
  const hash = createHash('sha256')
  for (let left = bytes; left > 0; left -= CHUNK.length) {
    const chunk = left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK
    hash.update(chunk)
    if (!request.write(chunk)) await once(request, 'drain')
  }
  request.end()
  return hash.digest('hex')
}

describe.runIf(needs('go'))('a client in Go', () => {
  let folder: string
  let server: Server
  let peer: ChildProcess
  let lines: AsyncIterator<string>

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-go-'))
    const binary = join(folder, 'peer')
    await goBuild(join(import.meta.dirname, 'go'), binary)
    server = await startServer()
    const { authority } = await makeWorld()
    await writeFile(join(folder, 'ca.pem'), authority.certificate)
    await writeFile(join(folder, 'token'), await token('go'))
    const { host, port } = server.controlAddress!
    const args = ['-url', `wss://${host}:${port}`, '-ca', join(folder, 'ca.pem'), '-token', join(folder, 'token')]
    peer = spawn(binary, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    lines = createInterface({ input: peer.stdout! })[Symbol.asyncIterator]()
    expect((await lines.next()).value).toBe('ready epoch=1 active=true')
  }, GO_BUILD_MS)

  afterAll(async () => {
    peer?.kill('SIGKILL')
    await server?.close({ graceMs: 0 })
    await rm(folder, { recursive: true, force: true })
  })

  test('receives the request as the caller sent it', async () => {
    const answer = await call(server, HOST, '/head?a=%2F', { headers: { 'x-sent': 'as it is' } })
    expect(answer.status).toBe(200)
    expect(answer.text).toContain(`GET http ${HOST} /head?a=%2F\n`)
    expect(answer.text).toContain('x-sent: as it is\n')
    expect((await call(server, HOST, '/nowhere')).status).toBe(404)
  })

  test('receives 100 MB', async () => {
    const { request, response } = startExchange(server, 'POST', '/upload')
    const sum = await write(request, SIZE)
    const chunks: Buffer[] = []
    for await (const chunk of await response) chunks.push(chunk)
    expect(Buffer.concat(chunks).toString()).toBe(`${SIZE} ${sum}`)
  })

  test('sends 100 MB', async () => {
    const hash = createHash('sha256')
    for (let left = SIZE; left > 0; left -= CHUNK.length) hash.update(CHUNK)
    const { request, response } = startExchange(server, 'GET', `/download?bytes=${SIZE}`)
    request.end()
    expect(await digest(await response)).toEqual({ bytes: SIZE, sum: hash.digest('hex') })
  })

  test('answers while the request is in progress, and ends with trailers', async () => {
    const { request, response } = startExchange(server, 'POST', '/echo', { te: 'trailers', trailer: 'x-sum' })
    request.write('first')
    const message = await response
    // The answer has begun; the request has not ended.
    expect(Buffer.from((await once(message, 'data'))[0]).toString()).toBe('first')
    request.addTrailers({ 'x-sum': '1' })
    const sent = write(request, 20_000_000)
    const got = createHash('sha256')
    message.on('data', chunk => got.update(chunk))
    await once(message, 'end')
    expect(got.digest('hex')).toBe(await sent)
    expect(message.trailers).toEqual({ 'x-end': 'echo', 'x-sum': '1' })
  })

  test('may answer early: the answer arrives whole', async () => {
    const { request, response } = startExchange(server, 'POST', '/early')
    request.on('error', () => {})
    const chunk = Buffer.alloc(1_000_000)
    let open = true
    const more = () => {
      while (open && request.write(chunk));
    }
    request.on('drain', more)
    more()
    const message = await response
    open = false
    expect(message.statusCode).toBe(413)
    const chunks: Buffer[] = []
    for await (const part of message) chunks.push(part)
    expect(Buffer.concat(chunks).toString()).toBe('no')
    request.destroy()
    // The session is none the worse for it.
    expect((await call(server, HOST, '/head')).status).toBe(200)
  })

  test('serves many streams at once', async () => {
    const one = async (index: number) => {
      const body = Buffer.alloc(1 + index * 997, index)
      const { request, response } = startExchange(server, 'POST', '/echo')
      request.end(body)
      const { bytes, sum } = await digest(await response)
      return bytes === body.length && sum === createHash('sha256').update(body).digest('hex')
    }
    for (let round = 0; round < 5; round++) {
      const all = await Promise.all(Array.from({ length: 100 }, (_, index) => one(index)))
      expect(all.filter(same => !same)).toEqual([])
    }
  })

  test('upgrades to WebSocket', async () => {
    const { host, port } = server.publicAddress!
    const ws = new WebSocket(`ws://${host}:${port}/socket`, { headers: { host: HOST }, perMessageDeflate: false })
    await once(ws, 'open')
    ws.send('hello')
    expect(String((await once(ws, 'message'))[0])).toBe('hello')
    const large = Buffer.alloc(1_000_000, 7)
    ws.send(large)
    expect(large.equals((await once(ws, 'message'))[0])).toBe(true)
    ws.close(1000, 'enough')
    expect((await once(ws, 'close'))[0]).toBe(1000)

    const refused = new WebSocket(`ws://${host}:${port}/no`, { headers: { host: HOST } })
    const [, answer] = await once(refused, 'unexpected-response')
    expect(answer.statusCode).toBe(403)
    refused.on('error', () => {})
    refused.terminate()
  })

  test('drains: open streams are served, new ones are not, and it leaves', async () => {
    const { request, response } = startExchange(server, 'POST', '/echo')
    request.write('before')
    const message = await response
    await once(message, 'data')
    const gone = once(peer, 'exit')
    const ended = event(server, 'sessionEnded')
    peer.kill('SIGTERM')
    let refused = 0
    while (refused !== 503) refused = (await call(server, HOST, '/head')).status
    request.end('after')
    const rest: Buffer[] = []
    for await (const chunk of message) rest.push(chunk)
    expect(Buffer.concat(rest).toString()).toBe('after')
    expect(await gone).toEqual([0, null])
    await ended
  })
})
