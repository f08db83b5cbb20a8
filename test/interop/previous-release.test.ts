/** The previous release, on either side: what an upgrade meets halfway, and a way back. */

import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { createServer as createHttp, type Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocketServer } from 'ws'
import * as here from '../../client/index.ts'
import * as hereServer from '../../server/index.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { needs, PREVIOUS_RELEASE } from '../support/needs.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'

const ROOT = resolve(import.meta.dirname, '../..')
type Connect = typeof here.connect
type CreateServer = typeof hereServer.createServer

let folder: string
let before: { connect: Connect; createServer: CreateServer }
let secrets: Secrets
let target: HttpServer
let targetUrl: string
const stops: (() => unknown)[] = []

beforeAll(async () => {
  if (!needs('history')) return
  folder = mkdtempSync(join(tmpdir(), 'sallyport-previous-'))
  const sources = execFileSync('git', ['archive', PREVIOUS_RELEASE], { cwd: ROOT, maxBuffer: 64 * 1024 * 1024 })
  execFileSync('tar', ['-x', '-C', folder], { input: sources })
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  const { connect } = (await import(join(folder, 'client/index.ts'))) as { connect: Connect }
  const { createServer } = (await import(join(folder, 'server/index.ts'))) as { createServer: CreateServer }
  before = { connect, createServer }
  secrets = await makeSecrets()
  target = createHttp((request, response) => void request.pipe(response))
  const webSockets = new WebSocketServer({ server: target })
  webSockets.on('connection', socket => socket.on('message', data => socket.send(data)))
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
  targetUrl = `http://127.0.0.1:${(target.address() as AddressInfo).port}`
})
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})
afterAll(() => {
  target?.closeAllConnections()
  target?.close()
  if (folder !== undefined) rmSync(folder, { recursive: true })
})

async function serve(createServer: CreateServer) {
  const server = await createServer({
    public: { host: '127.0.0.1', port: 0, tls: secrets.server },
    control: { host: '127.0.0.1', port: 0, tls: secrets.server },
    domains: [DOMAIN],
    auth: { jwks: secrets.jwks },
  })
  stops.push(() => server.close({ graceMs: 0 }))
  const port = server.publicAddress!.port
  return { server, place: { port, authority: `demo.${DOMAIN}:${port}`, ca: secrets.ca } }
}

async function dialIn(connect: Connect, server: hereServer.Server, ttl = '1h') {
  const tunnel = await connect({
    url: `wss://127.0.0.1:${server.controlAddress!.port}`,
    token: () => secrets.token('demo', ttl),
    ca: secrets.ca,
    proxy: '',
    target: targetUrl,
    connectTimeoutMs: 100_000,
  })
  stops.push(() => tunnel.close({ graceMs: 0 }))
  return tunnel
}

/** One of each kind, with the sizes that come back. */
async function callAll(place: Parameters<typeof Http1Caller.connect>[0]): Promise<unknown[]> {
  const caller = await Http1Caller.connect(place)
  const got = await caller.ask({ path: '/' })
  const large = Buffer.alloc(5_000_000, 'x')
  const posted = await caller.ask({ method: 'POST', path: '/hook', body: large })
  const socket = await caller.webSocket('/socket')
  socket.send('hello')
  const [said] = await once(socket, 'message')
  socket.close()
  caller.close()
  return [got.status, posted.status, posted.content.equals(large), String(said)]
}

const ALL_WELL = [200, 200, true, 'hello']

describe.runIf(needs('history'))('the release before', { tags: ['slow'] }, () => {
  const sides = () => ({
    'its client, this server': [before.connect, hereServer.createServer] as const,
    'this client, its server': [here.connect, before.createServer] as const,
  })

  it.each(['its client, this server', 'this client, its server'] as const)('%s: every kind of traffic', async name => {
    const [connect, createServer] = sides()[name]
    const { server, place } = await serve(createServer)
    const tunnel = await dialIn(connect, server)
    expect(await callAll(place)).toEqual(ALL_WELL)
    const { sessions } = tunnel.stats()
    expect(sessions).toHaveLength(2)
    // Renewed in band: the sessions stay.
    const renewing = await dialIn(connect, server, '6s')
    const first = renewing.stats().tokenExpiresMs!
    await expect.poll(() => renewing.stats().tokenExpiresMs!).toBeGreaterThan(first)
    expect(renewing.stats().reconnects).toBe(0)
    expect(await callAll(place)).toEqual(ALL_WELL)
  })

  it.each([
    ['an upgrade', (): [Connect, Connect] => [before.connect, here.connect]],
    ['a way back', (): [Connect, Connect] => [here.connect, before.connect]],
  ])('%s of the client, under load: no request is lost', async (_, order) => {
    const [from, to] = order()
    const { server, place } = await serve(from === before.connect ? before.createServer : hereServer.createServer)
    const old = await dialIn(from, server)
    const counts = new Map<number, number>()
    let goes = true
    const loads = Array.from({ length: 4 }, async () => {
      for (let n = 0; goes; n++) {
        const caller = await Http1Caller.connect(place)
        const { status } = await caller.ask({ method: 'POST', path: `/${n}`, body: 'a webhook' })
        counts.set(status, (counts.get(status) ?? 0) + 1)
        caller.close()
      }
    })
    const many = (more: number) => {
      const least = (counts.get(200) ?? 0) + more
      return expect.poll(() => counts.get(200) ?? 0).toBeGreaterThan(least)
    }
    await many(20)
    await dialIn(to, server)
    await old.close({ graceMs: 5000 })
    await many(20)
    goes = false
    await Promise.all(loads)
    expect([...counts.keys()]).toEqual([200])
  })
})
