import { afterEach, expect, test } from 'vitest'
import { createMetrics, type Metrics, type MetricsOptions } from '../../admin/index.ts'
import { ERRORS } from '../../protocol/base/errors.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'

const open: Metrics[] = []
afterEach(() => {
  for (const metrics of open.splice(0)) metrics.close()
})

function create(options: Partial<MetricsOptions> = {}): Metrics {
  const metrics = createMetrics({ component: 'server', version: '1.2.3', snapshot: () => ({}), ...options })
  open.push(metrics)
  return metrics
}

const exchange = (values: Partial<ExchangeRecord> = {}): ExchangeRecord => ({
  requestId: 'r',
  runtime: 'demo',
  route: 'a',
  session: 's',
  method: 'GET',
  host: 'demo.example',
  path: '/',
  caller: '192.0.2.1',
  status: 200,
  code: undefined,
  cut: false,
  durationMs: 12,
  bytesIn: 3,
  bytesOut: 5,
  upgrade: false,
  ...values,
})

/** Samples by name and labels, as Prometheus would read them. */
async function scrape(metrics: Metrics): Promise<Map<string, number>> {
  const { text } = await metrics.expose()
  const lines = text.split('\n').filter(line => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map(line => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}

test('exchanges by status and code, bytes, duration', async () => {
  const metrics = create()
  metrics.record(exchange())
  metrics.record(exchange({ status: 502, code: 'session-lost', cut: true }))
  metrics.record(exchange({ status: 101, upgrade: true, durationMs: 3_600_000 }))
  const samples = await scrape(metrics)
  expect(samples.get('sallyport_exchanges_total{status="200",code=""}')).toBe(1)
  expect(samples.get('sallyport_exchanges_total{status="502",code="session-lost"}')).toBe(1)
  expect(samples.get('sallyport_exchanges_cut_total')).toBe(1)
  expect(samples.get('sallyport_upgrades_total')).toBe(1)
  expect(samples.get('sallyport_request_bytes_total')).toBe(9)
  expect(samples.get('sallyport_response_bytes_total')).toBe(15)
  expect(samples.get('sallyport_exchange_duration_seconds_count')).toBe(2)
  expect(samples.get('sallyport_exchange_duration_seconds_bucket{le="0.025"}')).toBe(2)
})

test('A7: labels are bounded, and hold nothing that a tenant or a caller chose', async () => {
  const metrics = create()
  for (let i = 0; i < 3000; i++) {
    const name = `chosen-${i}`
    metrics.record(
      exchange({ status: i, code: name, runtime: name, host: name, path: name, method: name, route: name }),
    )
  }
  const { text } = await metrics.expose()
  expect(text).not.toContain('chosen')
  const series = text.split('\n').filter(line => line.startsWith('sallyport_exchanges_total{'))
  expect(series.length).toBeLessThanOrEqual(501)
})

test('each row of the error table may be a label', async () => {
  const metrics = create()
  for (const [code, { status }] of Object.entries(ERRORS)) metrics.record(exchange({ code, status }))
  const samples = await scrape(metrics)
  for (const [code, { status }] of Object.entries(ERRORS)) {
    expect(samples.get(`sallyport_exchanges_total{status="${status}",code="${code}"}`)).toBe(1)
  }
})

test('what a server tells is read at each scrape', async () => {
  let sessions = 1
  const metrics = create({
    snapshot: () => ({
      sessions,
      streams: 7,
      bufferedBytes: 4096,
      roundTripsMs: [20, 35, 10],
      handshakesRefused: { expired: 3, audience: 1 },
      sessionBytesIn: 100,
      sessionBytesOut: 200,
    }),
  })
  expect((await scrape(metrics)).get('sallyport_sessions')).toBe(1)
  sessions = 2
  const samples = await scrape(metrics)
  expect(samples.get('sallyport_sessions')).toBe(2)
  expect(samples.get('sallyport_streams')).toBe(7)
  expect(samples.get('sallyport_buffered_bytes')).toBe(4096)
  expect(samples.get('sallyport_ping_round_trip_seconds')).toBe(0.035)
  expect(samples.get('sallyport_handshakes_refused_total{reason="expired"}')).toBe(3)
  expect(samples.get('sallyport_session_received_bytes_total')).toBe(100)
  expect(samples.get('sallyport_session_sent_bytes_total')).toBe(200)
  expect(samples.get('sallyport_info{component="server",version="1.2.3"}')).toBe(1)
  expect(samples.has('sallyport_event_loop_delay_seconds{quantile="0.99"}')).toBe(true)
  expect(samples.get('process_resident_memory_bytes')).toBeGreaterThan(1_000_000)
  expect(samples.has('sallyport_token_expires_seconds')).toBe(false)
})

test("a client's token counts down, and has no sample while there is none", async () => {
  let tokenExpiresAt: number | undefined
  let now = 1_000_000
  const metrics = create({
    component: 'client',
    snapshot: () => (tokenExpiresAt === undefined ? { reconnects: 4 } : { tokenExpiresAt }),
    clock: () => now,
  })
  const before = await scrape(metrics)
  expect(before.has('sallyport_token_expires_seconds')).toBe(false)
  expect(before.get('sallyport_reconnects_total')).toBe(4)
  tokenExpiresAt = 1_090_000
  expect((await scrape(metrics)).get('sallyport_token_expires_seconds')).toBe(90)
  now = 1_100_000
  expect((await scrape(metrics)).get('sallyport_token_expires_seconds')).toBe(-10)
})

test('two components in one process share nothing', async () => {
  const first = create()
  const second = create({ component: 'router' })
  first.record(exchange())
  expect((await scrape(second)).has('sallyport_exchanges_total{status="200",code=""}')).toBe(false)
})
