/** `sallyport check --via RUNTIME`: with real servers and clients. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { needs } from '../support/needs.ts'
import { Redis } from '../support/redis.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { Running } from './process.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine
const service = createServer((_, response) => void response.end('hello'))

beforeEach(async () => {
  await once(service.listen(0, '127.0.0.1'), 'listening')
  const { port } = service.address() as AddressInfo
  const routes = [
    { name: 'api', match: { path: '/api' }, target: `http://127.0.0.1:${port}` },
    { name: 'dead', match: { path: '/dead' }, target: 'http://127.0.0.1:9' },
    { name: 'tls', match: { path: '/tls' }, target: `https://127.0.0.1:${port}` },
  ]
  writeFileSync(file('routes.yaml'), JSON.stringify({ routes }))
})
afterEach(() => void service.close().closeAllConnections())

async function startClient(...servers: Running[]): Promise<Running> {
  await machine.writeToken('token', { runtime: 'demo' })
  const addresses = await Promise.all(servers.map(server => server.address('control')))
  const client = machine.start([
    ...['client', '--ca', file('ca.pem'), '--token.file', file('token'), '--routes', file('routes.yaml'), ...ADMIN],
    ...addresses.flatMap(address => ['--server', `wss://${address}`]),
    ...['--connections', String(servers.length)],
  ])
  for (const index of servers.keys())
    await client.line(({ msg, connection }) => msg === 'connected' && connection === index)
  return client
}

async function via(server: Running, runtime: string, ...more: string[]) {
  const words = ['check', '--via', runtime, '--admin', `http://${await server.address('admin')}`, ...more]
  return await sallyport(words, { environment: machine.environment })
}

test('a table and JSON, for a runtime with two clients and one without', { tags: ['slow'] }, async () => {
  const server = machine.start(machine.serverArgs())
  const client = await startClient(server)
  await startClient(server)
  const { code, out } = await via(server, 'demo')
  expect(code).toBe(5)
  expect(out).toMatch(/^ok {6}upstream {10}"demo", active \w+, route "api": in [\d.]+ ms\n/m)
  expect(out).toMatch(/^fail {4}upstream {10}"demo", standby \w+, route "dead": upstream-refused: The service behind/m)
  expect(out).not.toContain('127.0.0.1')
  const { probes, ...report } = JSON.parse((await via(server, 'demo', '--json')).out)
  expect(report).toEqual({ schema: 1, component: 'client' })
  expect(probes.map((probe: { status: string }) => probe.status)).toEqual(['ok', 'fail', 'fail', 'ok', 'fail', 'fail'])
  expect(probes.map(({ hint }: { hint: string }) => hint.split(' ')[0]).slice(0, 3)).toEqual(['', 'Start', 'Trust'])
  expect(probes[0]).toMatchObject({ code: 'upstream', expected: 'connections', docs: 'docs/check.md#upstream' })
  await client.line(({ msg }) => msg === 'the server asks which targets accept connections')
  const audit = await server.line(line => line.audit === true && line.action === '/runtimes/check')
  expect(audit.body).toEqual({ runtime: 'demo' })
  const nobody = await via(server, 'nobody')
  expect([nobody.code, nobody.out]).toEqual([5, expect.stringMatching(/^fail .*runtime "nobody": no session$/m)])
})

test('missing or wrong arguments', async () => {
  expect((await sallyport(['check'])).notes).toContain('say what to check: client, server, router, or --via RUNTIME')
  expect(await sallyport(['check', 'nothing'])).toMatchObject({ code: 2 })
  const server = machine.start(machine.serverArgs())
  const client = await startClient(server)
  const wrong = await sallyport(['check', '--via', 'demo', '--admin', `http://${await client.address('admin')}`], {
    environment: machine.environment,
  })
  expect([wrong.code, wrong.notes]).toEqual([1, expect.stringContaining('has no /runtimes/check: it is not a server')])
})

describe.runIf(needs('redis'))('with two replicas', { tags: ['slow'] }, () => {
  test('each asks the clients of both, and one that is on both answers once', async () => {
    const redis = await Redis.start()
    try {
      const start = (name: string) => machine.start(machine.serverArgs('--replica', name, '--directory', redis.url))
      const [north, south] = [start('north'), start('south')]
      await startClient(north, south)
      await startClient(south)
      const { probes } = JSON.parse((await via(north, 'demo', '--json')).out)
      const found = probes.map(({ what, status }: Record<string, string>) => `${what!.replace(/^.*, /, '')} ${status}`)
      const each = ['route "api" ok', 'route "dead" fail', 'route "tls" fail']
      expect(found.sort()).toEqual(each.flatMap(one => [one, one]))
      const audit = await south.line(line => line.audit === true && line.action === '/runtimes/check')
      expect(audit.from).toMatch(/^north~/)
    } finally {
      await machine.end()
      await redis.stop()
    }
  })
})
