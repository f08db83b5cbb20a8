// @module-tag slow
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { get, Agent as TlsAgent } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setInterval, setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { inspectToken } from '../../certs/index.ts'
import { unhurried } from '../support/busy.ts'
import { Running } from './process.ts'
import { sallyport } from './run.ts'

const IS_LONG = process.env.TEST_LONG === '1'
const TTL_S = IS_LONG ? 20 : Math.ceil(unhurried(6000) / 1000)
const PACE_MS = 10
const TRAFFIC_MS = IS_LONG ? 120_000 : TTL_S * 2400

let folder: string
const file = (name: string) => join(folder, name)

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-renewal-'))
  await sallyport(['certs', 'init', '--out', folder, '--host', '127.0.0.1', '*.tunnels.localhost'])
  await sallyport(['keys', 'create', '--out', folder])
})
afterAll(() => rmSync(folder, { recursive: true }))

/** What the deployment's timer runs: a new token in one step, at a third of its lifetime. */
async function renewToken(): Promise<void> {
  const create = ['token', 'create', '--key', file('private.jwk'), '--runtime', 'demo', '--ttl', `${TTL_S}s`]
  const { code } = await sallyport([...create, '--out', file('token')])
  expect(code).toBe(0)
}

test('tokens that are renewed from outside: steady traffic loses nothing', async () => {
  const service = createServer((_, response) => response.end('fine')).listen(0, '127.0.0.1')
  await once(service, 'listening')
  await renewToken()
  const firstEnds = inspectToken(readFileSync(file('token'), 'utf8').trim()).expiresAt!
  const tls = (name: string) => [`--${name}.tls.cert`, file('server.pem'), `--${name}.tls.key`, file('server-key.pem')]
  const server = new Running([
    ...['server', '--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--domain', 'tunnels.localhost'],
    ...[...tls('public'), ...tls('control'), '--auth.jwks.file', file('jwks.json'), '--auth.clock-tolerance', '0s'],
    ...['--admin.listen', 'off'],
  ])
  const client = new Running([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
    ...['--token.file', file('token'), '--target', `http://127.0.0.1:${(service.address() as AddressInfo).port}`],
    ...['--admin.listen', 'off'],
  ])
  await client.line(line => line.msg === 'connected')
  const [, port] = (await server.address('public')).split(':')

  const until = performance.now() + TRAFFIC_MS
  const renewing = new AbortController()
  const renewal = renewEvery((TTL_S * 1000) / 3, renewing.signal)
  const agent = new TlsAgent({ keepAlive: true, ca: readFileSync(file('ca.pem')) })
  const answers = await Promise.all(Array.from({ length: 4 }, () => steadyTraffic(Number(port), agent, until)))
  renewing.abort()
  await renewal

  const counts = new Map<string, number>()
  for (const answer of answers.flat()) counts.set(answer, (counts.get(answer) ?? 0) + 1)
  expect([...counts.keys()]).toEqual(['200 fine'])
  expect(counts.get('200 fine')).toBeGreaterThan(100)
  expect(Date.now()).toBeGreaterThan(firstEnds)
  expect(client.lines.filter(line => line.msg === 'the session has a fresh token').length).toBeGreaterThan(3)

  agent.destroy()
  expect(await client.end('SIGTERM')).toBe(0)
  expect(await server.end('SIGTERM')).toBe(0)
  service.close()
})

async function renewEvery(ms: number, signal: AbortSignal): Promise<void> {
  try {
    for await (const _ of setInterval(ms, undefined, { signal })) await renewToken()
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

/** One request after the other, at the pace of a caller and not of a load test; the outcome of each. */
async function steadyTraffic(port: number, agent: TlsAgent, until: number): Promise<string[]> {
  const answers: string[] = []
  while (performance.now() < until) {
    answers.push(await ask(port, agent))
    await setTimeout(PACE_MS)
  }
  return answers
}

async function ask(port: number, agent: TlsAgent): Promise<string> {
  const host = 'demo.tunnels.localhost'
  try {
    const sent = get({ host: '127.0.0.1', port, agent, servername: host, headers: { host } })
    const [response] = await once(sent, 'response')
    let body = ''
    for await (const chunk of response.setEncoding('utf8')) body += chunk
    return `${response.statusCode} ${response.headers['sallyport-error'] ?? body}`
  } catch (error) {
    return (error as Error).message
  }
}
