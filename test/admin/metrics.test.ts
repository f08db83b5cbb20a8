import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createMetrics, type Metrics, type MetricsOptions } from '../../admin/index.ts'
import { ERRORS } from '../../protocol/base/errors.ts'
import { work } from '../support/busy.ts'
import { until } from '../support/until.ts'
import { exchange } from './exchange.ts'

const open: Metrics[] = []
afterEach(() => {
  for (const metrics of open.splice(0)) metrics.close()
})

function create(options: Partial<MetricsOptions> = {}): Metrics {
  const metrics = createMetrics({ component: 'server', version: '1.2.3', snapshot: () => ({}), ...options })
  open.push(metrics)
  return metrics
}

/** Samples by name and labels, as Prometheus would read them. */
async function scrape(metrics: Metrics): Promise<Map<string, number>> {
  const { text } = await metrics.expose()
  const lines = text.split('\n').filter(line => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map(line => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}

test('exchanges by status and code, bytes, duration', async () => {
  const metrics = create({ snapshot: () => ({ bodyBytesIn: 9, bodyBytesOut: 15 }) })
  metrics.record(exchange())
  metrics.record(exchange({ status: 502, code: 'session-lost', cut: true }))
  metrics.record(exchange({ status: 101, upgrade: true, durationMs: 3_600_000 }))
  const samples = await scrape(metrics)
  expect(samples.get('sallyport_exchanges_total{http_response_status_code="200",error_type=""}')).toBe(1)
  expect(samples.get('sallyport_exchanges_total{http_response_status_code="502",error_type="session-lost"}')).toBe(1)
  expect(samples.get('sallyport_exchanges_cut_total')).toBe(1)
  expect(samples.get('sallyport_upgrades_total')).toBe(1)
  expect(samples.get('sallyport_request_bytes_total')).toBe(9)
  expect(samples.get('sallyport_response_bytes_total')).toBe(15)
  expect(samples.get('http_server_request_duration_seconds_count{status_class="2xx"}')).toBe(1)
  expect(samples.get('http_server_request_duration_seconds_bucket{status_class="5xx",le="0.025"}')).toBe(1)
})

test('A7: labels are bounded, and contain nothing that a tenant or a caller chose', async () => {
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
    expect(samples.get(`sallyport_exchanges_total{http_response_status_code="${status}",error_type="${code}"}`)).toBe(1)
  }
})

test("a server's statistics are read at each scrape", async () => {
  let sessions = 1
  const metrics = create({
    snapshot: () => ({
      sessions,
      streams: 7,
      bufferedBytes: 4096,
      roundTripsMs: [20, 35, 10],
      handshakesRefused: { token: 3, 'not of the list': 1 },
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
  expect(samples.get('sallyport_handshakes_refused_total{reason="token"}')).toBe(3)
  expect(samples.get('sallyport_handshakes_refused_total{reason="origin"}')).toBe(0)
  expect(samples.get('sallyport_handshakes_refused_total{reason="other"}')).toBe(1)
  expect(samples.get('sallyport_session_received_bytes_total')).toBe(100)
  expect(samples.get('sallyport_session_sent_bytes_total')).toBe(200)
  expect(samples.get(`sallyport_build_info{component="server",version="1.2.3",node="${process.versions.node}"}`)).toBe(
    1,
  )
  expect(samples.has('nodejs_eventloop_delay_p99_seconds')).toBe(true)
  expect(samples.get('process_memory_usage_bytes')).toBeGreaterThan(1_000_000)
  expect(samples.has('sallyport_token_expiry_timestamp_seconds')).toBe(false)
})

test("the expiry of a client's token is a time, and has no sample without one", async () => {
  let tokenExpiresAt: number | undefined
  const metrics = create({
    component: 'client',
    snapshot: () => (tokenExpiresAt === undefined ? { reconnects: 4 } : { tokenExpiresAt }),
  })
  const before = await scrape(metrics)
  expect(before.has('sallyport_token_expiry_timestamp_seconds')).toBe(false)
  expect(before.get('sallyport_reconnects_total')).toBe(4)
  tokenExpiresAt = 1_090_000
  expect((await scrape(metrics)).get('sallyport_token_expiry_timestamp_seconds')).toBe(1090)
})

test('routes are labels on client and router, the first 50 of them', async () => {
  const metrics = create({ component: 'client' })
  for (let i = 0; i < 3000; i++) metrics.record(exchange({ route: `route-${i}` }))
  metrics.record(exchange({ route: undefined, status: 404, code: 'no-route' }))
  const samples = await scrape(metrics)
  const totals = [...samples.keys()].filter(name => name.startsWith('sallyport_exchanges_total{'))
  expect(totals).toHaveLength(52)
  const other = 'http_response_status_code="200",error_type="",route="other"'
  expect(samples.get(`sallyport_exchanges_total{${other}}`)).toBe(2950)
  const counts = [...samples.keys()].filter(name => name.startsWith('http_server_request_duration_seconds_count{'))
  expect(counts).toHaveLength(52)
})

const OPEN = 'application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1'

test('OpenMetrics on request, with the last sampled trace of each bucket', async () => {
  const metrics = create()
  const traceId = '0af7651916cd43dd8448eb211c80319c'
  metrics.record(exchange({ traceId: 'f'.repeat(32) }))
  metrics.record(exchange({ traceId }))
  metrics.record(exchange())
  metrics.record(exchange({ status: 502, code: 'session-lost', durationMs: 80_000 }))
  const { contentType, text } = await metrics.expose(OPEN)
  expect(contentType).toContain('application/openmetrics-text; version=1.0.0')
  expect(text.endsWith('\n# EOF\n')).toBe(true)
  expect(text).toMatch(
    new RegExp(`_bucket\\{status_class="2xx",le="0.025"\\} 3 # \\{trace_id="${traceId}"\\} 0.012 \\d{10}\\.\\d+\n`),
  )
  expect(text.split(' # {')).toHaveLength(2)
  expect(text).toContain('sallyport_exchanges_total{http_response_status_code="200",error_type=""} 3\n')
  const families = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name)
  expect(new Set(families).size).toBe(families.length)
  expect(families).toContain('sallyport_exchanges')
  // One scrape does not affect the next.
  expect((await metrics.expose()).text).toContain('# TYPE sallyport_exchanges_total counter')
})

test.each([
  [undefined, false],
  ['*/*', false],
  ['text/plain', false],
  ['application/openmetrics-text', true],
  [OPEN, true],
  ['application/openmetrics-text;q=0', false],
  ['application/openmetrics-text;q=0.2, text/plain', false],
  [`${'application/openmetrics-text;q=x,'.repeat(400)}`, false],
])('Accept: %s', async (accept, isOpen) => {
  const { contentType } = await create().expose(accept)
  expect(contentType.startsWith('application/openmetrics-text')).toBe(isOpen)
})

test('two scrapers see the same delay of the event loop for a minute at least, and for two at most, even if nobody has asked', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  try {
    const metrics = create()
    const longest = async () => (await scrape(metrics)).get('nodejs_eventloop_delay_max_seconds')!
    // The monitor samples every 50 ms, and reports what it met at the next sample.
    await until(async () => {
      work(1000)
      return (await longest()) > 0.8
    })
    const first = await longest()
    for (const ms of [59_999, 1, 59_999]) {
      vi.advanceTimersByTime(ms)
      expect(await longest()).toBeGreaterThanOrEqual(first)
    }
    vi.advanceTimersByTime(7 * 86_400_000)
    expect(await longest()).toBeLessThan(first)
  } finally {
    vi.useRealTimers()
  }
})

test('two components in one process share nothing', async () => {
  const first = create()
  const second = create({ component: 'router' })
  first.record(exchange())
  expect((await scrape(second)).has('sallyport_exchanges_total{http_response_status_code="200",error_type=""}')).toBe(
    false,
  )
})

describe('scrapers without a token', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('get the next rendering together, which includes everything counted before they asked', async () => {
    let written = 0
    const metrics = create({ snapshot: () => ({ sessions: ++written }) })
    const scrapes = Array.from({ length: 1000 }, (_, at) =>
      metrics.expose(at % 2 === 0 ? 'text/plain' : 'application/openmetrics-text'),
    )
    metrics.record(exchange())
    await vi.runAllTimersAsync()
    const texts = await Promise.all(scrapes)
    expect(written).toBe(2)
    for (const { text } of texts) expect(text).toContain('sallyport_exchanges_total{http_response_status_code="200"')
  })

  test('leave nine tenths of the time to everything else, even if rendering fails', async () => {
    let written = 0
    const snapshot = () => {
      vi.advanceTimersByTime(10)
      if (++written === 2) throw new Error('no snapshot')
      return {}
    }
    const metrics = create({ snapshot, now: () => 0 })
    await metrics.expose()
    const failing = metrics.expose().catch((error: Error) => error.message)
    await vi.advanceTimersByTimeAsync(89)
    expect(written).toBe(1)
    await vi.advanceTimersByTimeAsync(1)
    expect(await failing).toBe('no snapshot')
    const last = metrics.expose()
    await vi.advanceTimersByTimeAsync(89)
    expect(written).toBe(2)
    await vi.advanceTimersByTimeAsync(1)
    await last
  })
})
