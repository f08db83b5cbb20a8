/** The exporter in front of a receiver that decodes what arrives. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createExporter, createTracer, type Exporter, type ExporterOptions } from '../../tracing/index.ts'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { waterfall } from '../support/spans.ts'

let receiver: OtlpReceiver
let exporter: Exporter | undefined
beforeEach(async () => {
  receiver = await OtlpReceiver.start()
})
afterEach(async () => {
  await exporter?.close({ graceMs: 0 })
  exporter = undefined
  await receiver.stop()
})

const lines: { level: string; fields: object; message: string }[] = []
const say = (level: string) => (fields: object, message: string) => void lines.push({ level, fields, message })
const logger = { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }

function start(options: Partial<ExporterOptions> = {}) {
  lines.length = 0
  const url = `${receiver.url}/v1/traces`
  const made = createExporter({ url, resource: { 'service.name': 'edge' }, delayMs: 1, logger, ...options })
  exporter = made
  const tracer = createTracer(made.add)
  return { exporter: made, tracer, span: (name: string) => tracer.start(name, 'server', undefined).end() }
}

/** There is no event for a counter. */
async function until(done: () => boolean): Promise<void> {
  while (!done()) await new Promise(resolve => setImmediate(resolve))
}

test('what is sent is valid OTLP', async () => {
  const { tracer, exporter } = start({ headers: { authorization: 'Bearer s3cret' } })
  const link = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), sampled: true, state: 'x=1' }
  const span = tracer.start('GET', 'server', { ...link, spanId: 'c'.repeat(16) })
  const child = span.child('tunnel', 'client')
  for (const [name, value] of Object.entries({ text: 'caf\u00e9 "', whole: -3, part: 0.5, flag: true }))
    child.set(name, value)
  child.link(link)
  child.end('session-lost')
  span.end()
  await receiver.until(({ spans }) => spans.length === 2)
  expect(receiver.faults).toEqual([])
  expect(receiver.requests[0]).toMatchObject({
    method: 'POST',
    path: '/v1/traces',
    resource: { 'service.name': 'edge' },
  })
  expect(receiver.requests[0]!.headers).toMatchObject({
    authorization: 'Bearer s3cret',
    'content-type': 'application/json',
  })
  expect(waterfall(receiver.spans, 'text', 'whole', 'part', 'flag', 'error.type')).toEqual([
    'GET server',
    `  tunnel client FAILED -> ${'b'.repeat(16)} text=caf\u00e9 " whole=-3 part=0.5 flag=true error.type=session-lost`,
  ])
  expect(receiver.spans.map(({ traceId, state }) => [traceId, state])).toEqual([
    ['a'.repeat(32), 'x=1'],
    ['a'.repeat(32), 'x=1'],
  ])
  await until(() => exporter.stats().exported === 2)
})

test('a number that OTLP cannot hold as an integer is a double, and fails no batch', async () => {
  const { tracer, exporter } = start()
  const span = tracer.start('GET', 'server', undefined)
  const numbers = { big: 1e308, port: 2 ** 63, none: Number.NaN, endless: -Infinity, zero: -0, safe: 2 ** 53 - 1 }
  for (const [name, value] of Object.entries(numbers)) span.set(name, value)
  span.end()
  await until(() => exporter.stats().exported === 1)
  expect(receiver.faults).toEqual([])
  expect(receiver.spans.map(({ attributes }) => attributes)).toEqual([{ ...numbers, zero: 0 }])
})

test('many spans go in batches, one request at a time', async () => {
  const { span, exporter } = start({ batchSpans: 10, delayMs: 60_000 })
  for (let i = 0; i < 25; i++) span(`s${i}`)
  await receiver.until(({ spans }) => spans.length >= 20)
  await exporter.close()
  expect(receiver.requests.map(({ spans }) => spans.length)).toEqual([10, 10, 5])
  expect(exporter.stats()).toMatchObject({ exported: 25, queued: 0 })
})

test('what does not fit is dropped and counted', async () => {
  const { span, exporter } = start({ queuedSpans: 5, batchSpans: 5, delayMs: 60_000 })
  receiver.replies.push(() => {})
  for (let i = 0; i < 8; i++) span(`s${i}`)
  expect(exporter.stats()).toMatchObject({ queued: 5, dropped: { 'queue-full': 3 } })
  // Those in transit count, too.
  await receiver.until(({ requests }) => requests.length === 1)
  span('late')
  expect(exporter.stats()).toMatchObject({ queued: 5, dropped: { 'queue-full': 4 } })
  await exporter.close({ graceMs: 0 })
  expect(exporter.stats()).toMatchObject({ queued: 0, exported: 0, dropped: { 'queue-full': 4, closed: 5 } })
})

describe('a receiver that refuses them', () => {
  test.each([429, 502, 503, 504])('%i: they are sent again, when it says', async status => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.writeHead(status, { 'retry-after': '0' }).end())
    span('a')
    await until(() => exporter.stats().exported === 1)
    expect(receiver.requests).toHaveLength(2)
    expect(lines).toEqual([
      { level: 'warn', fields: expect.objectContaining({ status }), message: 'the receiver did not accept spans' },
    ])
  })

  test('a connection that breaks: they are sent again', async () => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.destroy())
    span('a')
    await until(() => exporter.stats().exported === 1)
    expect(receiver.requests).toHaveLength(2)
  })

  test.each([400, 401, 404, 500])('%i: they are dropped', async status => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.writeHead(status).end('no'))
    span('a')
    await until(() => exporter.stats().dropped.refused === 1)
    expect(receiver.requests).toHaveLength(1)
  })

  test('a part of them: the rest counts as accepted', async () => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.end('{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}'))
    span('a')
    span('b')
    await until(() => exporter.stats().exported === 1)
    expect(exporter.stats().dropped).toEqual({ 'queue-full': 0, refused: 1, away: 0, closed: 0 })
  })

  test('nothing that it answers, nor where it redirects to, is trusted', async () => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.writeHead(302, { location: `${receiver.url}/elsewhere` }).end())
    receiver.replies.push(to => to.end('x'.repeat(1_000_000)))
    span('a')
    await until(() => exporter.stats().dropped.refused === 1)
    span('b')
    await until(() => exporter.stats().exported === 1)
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/v1/traces', '/v1/traces'])
  })

  test('no secret is in the log', async () => {
    const headers = { authorization: 'Bearer s3cret' }
    const { span, exporter } = start({ url: `${receiver.url}/v1/traces?key=s3cret`, headers })
    receiver.replies.push(to => to.writeHead(401).end('s3cret'))
    span('a')
    await until(() => exporter.stats().dropped.refused === 1)
    expect(lines).toHaveLength(1)
    expect(JSON.stringify(lines)).not.toContain('s3cret')
  })
})

describe('close', () => {
  test('sends what waits', async () => {
    const { span, exporter } = start({ delayMs: 60_000 })
    span('a')
    await exporter.close()
    expect(receiver.spans.map(({ name }) => name)).toEqual(['a'])
    span('late')
    expect(exporter.stats()).toMatchObject({ exported: 1, dropped: { closed: 1 } })
  })

  test('waits for a silent receiver no longer than it may', async () => {
    const { span, exporter } = start({ delayMs: 60_000 })
    receiver.replies.push(() => {})
    span('a')
    await exporter.close({ graceMs: 20 })
    expect(exporter.stats()).toMatchObject({ exported: 0, queued: 0, dropped: { closed: 1 } })
  })

  test('cuts a wait before a retry short, and makes that attempt', async () => {
    const { span, exporter } = start()
    receiver.replies.push(to => to.writeHead(503, { 'retry-after': '60' }).end())
    span('a')
    await until(() => lines.length === 1)
    await exporter.close()
    expect(exporter.stats()).toMatchObject({ exported: 1, dropped: { closed: 0 } })
  })
})

test.each([
  [{ url: 'ftp://a' }, /^exporter.url must be a URL with http/],
  [{ url: 'https://user:s3cret@a/' }, /^exporter.url must have no credentials/],
  [{ headers: { 'a b': 's3cret' } }, /^exporter.headers: a name is not a valid header name$/],
  [{ headers: { a: 's3cret\n' } }, /^exporter.headers: the value of a is not valid$/],
  [{ queuedSpans: 0 }, /^exporter.queuedSpans must be/],
])('%j is refused', (options, message) => {
  expect(() => start(options)).toThrow(message)
})
