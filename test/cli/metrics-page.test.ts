/** `docs/metrics.md` against a running server, client and router. */
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { get as httpGet } from 'node:http'
import { request } from 'node:https'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { METRICS } from '../../admin/definitions.ts'
import type { RefusalReason } from '../../server/control/handshake.ts'
import type { HoldOutcomes } from '../../server/edge/hold.ts'
import { CAPTURE_REASONS } from '../../server/inbox/capture.ts'
import type { OutcomeKind } from '../../server/inbox/retry.ts'
import type { MessageState } from '../../server/inbox/store.ts'
import type { DropReason } from '../../tracing/index.ts'
import { ADMIN, useMachine } from './machine.ts'

const machine = useMachine()
const { file } = machine

async function get(address: string, path: string, headers: Record<string, string> = {}) {
  const [response] = await once(httpGet(`http://${address}${path}`, { headers, agent: false }), 'response')
  return { status: response.statusCode as number, body: await text(response) }
}

/** Label names by metric, of those that the page says a component has. */
function pageOf(component: string, section: string): Map<string, Set<string>> {
  const parts = readFileSync('docs/metrics.md', 'utf8').split(/^## /m)
  const rows = parts.find(part => part.startsWith(section))!.matchAll(/^\| `(\w+)` \|(.*)\|$/gm)
  const found = new Map<string, Set<string>>()
  for (const [, name, rest] of rows) {
    const cells = rest!.split(' | ')
    const labels = [...cells.at(-1)!.matchAll(/`(\w+)`: (on client and router)?/g)]
    const own = labels.filter(([, , where]) => where === undefined || component !== 'server').map(([, label]) => label!)
    if (cells[2]!.split(', ').includes(component)) found.set(name!, new Set(own))
  }
  return found
}

/** The same, as exposed. */
function exposed(body: string): Map<string, Set<string>> {
  const found = new Map([...body.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => [name!, new Set<string>()]))
  for (const [, sample, labels = ''] of body.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const name = found.has(sample!) ? sample! : sample!.replace(/_(?:bucket|sum|count)$/, '')
    for (const [, label] of labels.matchAll(/(\w+)="/g)) if (label !== 'le') found.get(name)!.add(label!)
  }
  return found
}

test('the page and the served metrics agree, in both directions, labels included', async () => {
  const health = ['--health.listen', '127.0.0.1:0']
  const tls = ['--tls.cert', file('server.pem'), '--tls.key', file('server-key.pem')]
  writeFileSync(file('empty.yaml'), 'routes: []\n')
  const router = machine.start([
    'router',
    '--listen',
    '127.0.0.1:0',
    '--routes',
    file('empty.yaml'),
    ...['--tracing', 'otlp'],
    ...health,
    ...ADMIN,
    ...tls,
  ])
  const inbox = ['--inbox', `sqlite:${file('inbox.db')}`]
  const access = [
    '--access.jwt.jwks.file',
    file('jwks.json'),
    '--access.jwt.issuer',
    'us',
    '--access.jwt.audience',
    'us',
  ]
  const open = ['--access.open', '/']
  const server = machine.start(machine.serverArgs(...inbox, ...health, ...access, ...open, '--tracing', 'otlp'))
  await machine.writeToken('token', { runtime: 'demo' })
  const client = machine.start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem'), ...health, ...ADMIN],
    ...['--token.file', file('token'), '--routes', file('empty.yaml'), '--tracing', 'otlp', ...tls],
  ])
  await client.line(line => line.msg === 'connected')
  const caller = { host: 'demo.tunnels.localhost' }
  expect((await get(await server.address('public'), '/', caller)).status).toBe(404)
  const sent = request(`https://${await router.address('router')}/`, { rejectUnauthorized: false }).end()
  const [answer] = await once(sent, 'response')
  answer.resume()

  for (const [name, component] of Object.entries({ server, client, router })) {
    const { body } = await get(await component.address('health'), '/metrics')
    const [page, served] = [pageOf(name, 'Of every'), exposed(body)]
    expect([...served.keys()].sort(), name).toEqual([...page.keys()].sort())
    for (const [metric, labels] of page) {
      // Only replicas pass exchanges to each other.
      if (metric !== 'sallyport_hops_total')
        expect([...served.get(metric)!].sort(), `${name}: ${metric}`).toEqual([...labels].sort())
    }
  }

  const admin = await server.address('admin')
  const path = '/metrics/runtimes'
  expect((await get(admin, path)).status).toBe(401)
  expect((await get(admin, path, { authorization: `Bearer ${'x'.repeat(43)}` })).status).toBe(401)
  expect((await get(await server.address('health'), path)).status).toBe(404)
})

test('label values are those that the components count', () => {
  const reasons: Record<RefusalReason, 0> = {
    ...{ 'not-found': 0, 'not-upgrade': 0, 'token-in-url': 0, origin: 0, subprotocol: 0, body: 0, token: 0 },
    ...{
      certificate: 0,
      'keys-unavailable': 0,
      'too-many-sessions': 0,
      'shutting-down': 0,
      'queue-full': 0,
      internal: 0,
    },
  }
  const held: Record<keyof HoldOutcomes, 0> = { resumed: 0, expired: 0, refused: 0, left: 0 }
  const attempts: Record<OutcomeKind, 0> = { delivered: 0, refused: 0, gone: 0, failed: 0, offline: 0, damaged: 0 }
  const states: Record<MessageState, 0> = { waiting: 0, dead: 0, delivered: 0 }
  const dropped: Record<DropReason, 0> = { 'queue-full': 0, refused: 0, away: 0, closed: 0 }
  const expected = {
    sallyport_handshakes_refused_total: Object.keys(reasons),
    sallyport_held_requests_total: Object.keys(held),
    sallyport_inbox_accepted_total: [...CAPTURE_REASONS, 'duplicate'],
    sallyport_inbox_attempts_total: Object.keys(attempts),
    sallyport_inbox_messages: Object.keys(states),
    sallyport_spans_dropped_total: Object.keys(dropped),
  }
  for (const [name, values] of Object.entries(expected)) {
    const { labels } = METRICS.find(metric => metric.name === name)!
    expect(Object.values(labels), name).toEqual([values])
  }
})
