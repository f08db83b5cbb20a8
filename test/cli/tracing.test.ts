/** `--tracing otlp`: processes that send their spans to a receiver. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { get as httpGet } from 'node:http'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { waterfall } from '../support/spans.ts'
import { ADMIN, useMachine } from './machine.ts'

const machine = useMachine()
let receiver: OtlpReceiver
beforeEach(async () => {
  receiver = await OtlpReceiver.start()
})
afterEach(() => receiver.stop())

async function get(address: string, path: string, headers: Record<string, string> = {}) {
  const [response] = await once(httpGet(`http://${address}${path}`, { headers, agent: false }), 'response')
  return { status: response.statusCode as number, body: await text(response) }
}

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const caller = { host: 'demo.tunnels.localhost', traceparent: `00-${TRACE}-b7ad6b7169203331-01` }
const HEADERS = 'authorization=Bearer%20s3cret'

test('a server sends its spans, counts them, and sends what is left when it stops', async () => {
  const health = ['--health.listen', '127.0.0.1:0', '--hold.time', '0s']
  const server = machine.start(machine.serverArgs(...health, '--tracing', 'otlp', '--trusted-proxies', '127.0.0.1'), {
    ...{ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_HEADERS: HEADERS },
    ...{ OTEL_SERVICE_NAME: 'edge', OTEL_RESOURCE_ATTRIBUTES: 'zone=a' },
  })
  const address = await server.address('public')
  expect((await get(address, '/x?s3cret', caller)).status).toBe(503)
  expect((await get(await server.address('health'), '/metrics')).body).toMatch(/^sallyport_spans_queued 1$/m)
  expect(await server.end('SIGTERM')).toBe(0)
  expect(receiver.faults).toEqual([])
  expect(receiver.requests).toMatchObject([
    {
      headers: { authorization: 'Bearer s3cret' },
      resource: { 'service.name': 'edge', zone: 'a' },
      spans: [{ traceId: TRACE, parentId: 'b7ad6b7169203331' }],
    },
  ])
  expect(waterfall(receiver.spans, 'url.path', 'error.type')).toEqual([
    'GET server FAILED url.path=/x error.type=runtime-offline',
  ])
  expect(server.text).not.toContain('s3cret')
})

test('a flag takes precedence over a variable, and its receiver is not sent what is meant for others', async () => {
  const args = ['--tracing', 'otlp', '--tracing.endpoint', receiver.url, '--tracing.ratio', '1', '--hold.time', '0s']
  const server = machine.start(machine.serverArgs(...args), {
    ...{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1', OTEL_EXPORTER_OTLP_HEADERS: HEADERS },
    OTEL_TRACES_SAMPLER: 'always_off',
  })
  await get(await server.address('public'), '/', { host: caller.host })
  expect(await server.end('SIGTERM')).toBe(0)
  expect(receiver.spans).toHaveLength(1)
  expect(receiver.requests[0]!.headers.authorization).toBeUndefined()
  expect(receiver.requests[0]!.resource).toMatchObject({ 'service.name': 'sallyport-server' })
})

test('an invalid variable prevents the start, and its value is not shown', async () => {
  const server = machine.start(machine.serverArgs('--tracing', 'otlp'), { OTEL_EXPORTER_OTLP_HEADERS: 's3cret' })
  expect(await server.end()).toBe(3)
  expect(server.text).toContain('OTEL_EXPORTER_OTLP_HEADERS must be a list')
  expect(server.text).not.toContain('s3cret')
})

const otlp = () => ['--tracing', 'otlp', '--tracing.endpoint', receiver.url]

/** A server that traces, its client, and a request to a route. */
async function pair(...ofClient: string[]) {
  const server = machine.start(machine.serverArgs(...otlp(), '--trusted-proxies', '127.0.0.1'))
  await machine.writeToken('token', { runtime: 'demo' })
  writeFileSync(machine.file('routes.yaml'), 'routes: [{ name: hi, match: { path: /hi }, answer: { status: 200 } }]')
  const client = machine.start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', machine.file('ca.pem'), ...ADMIN],
    ...['--token.file', machine.file('token'), '--routes', machine.file('routes.yaml'), ...ofClient],
  ])
  await client.line(line => line.msg === 'connected')
  expect((await get(await server.address('public'), '/hi', caller)).status).toBe(200)
  expect([await client.end('SIGTERM'), await server.end('SIGTERM')]).toEqual([0, 0])
  expect(receiver.faults).toEqual([])
}

test('server and client send to one receiver: one waterfall', { tags: ['slow'] }, async () => {
  await pair(...otlp())
  expect(waterfall(receiver.spans)).toEqual(['GET server', '  tunnel client', '    GET /hi server'])
  const services = receiver.requests.map(({ resource }) => resource['service.name'])
  expect(services.sort()).toEqual(['sallyport-client', 'sallyport-server'])
})

test('a client that cannot reach the receiver returns its part to the server, including what waits when it stops', async () => {
  await pair('--tracing', 'server')
  expect(waterfall(receiver.spans, 'sallyport.reported_by')).toEqual([
    'GET server',
    '  tunnel client',
    '    GET /hi server sallyport.reported_by=client',
  ])
  expect(receiver.requests.map(({ resource }) => resource['service.name'])).toEqual(['sallyport-server'])
})
