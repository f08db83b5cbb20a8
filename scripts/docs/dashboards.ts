/** The dashboards of `deploy/monitoring`, for Grafana 10 and newer: the queries of each panel, and the JSON that Grafana imports. */

export interface Panel {
  readonly title: string
  readonly unit: 'bytes' | 'none' | 'percentunit' | 'reqps' | 's'
  /** Legend by PromQL expression. `$job` is the job that the viewer chose. */
  readonly queries: Readonly<Record<string, string>>
}

const JOB = 'job=~"$job"'

const EXCHANGES: readonly Panel[] = [
  {
    title: 'Requests by status',
    unit: 'reqps',
    queries: {
      [`sum by (http_response_status_code) (rate(sallyport_exchanges_total{${JOB}}[$__rate_interval]))`]:
        '{{http_response_status_code}}',
    },
  },
  {
    title: "Sallyport's own failures by code",
    unit: 'reqps',
    queries: {
      [`sum by (error_type) (rate(sallyport_exchanges_total{${JOB}, error_type!~"|cancelled"}[$__rate_interval]))`]:
        '{{error_type}}',
    },
  },
  {
    title: 'Duration',
    unit: 's',
    queries: {
      [`histogram_quantile(0.5, sum by (le) (rate(http_server_request_duration_seconds_bucket{${JOB}}[$__rate_interval])))`]:
        'p50',
      [`histogram_quantile(0.99, sum by (le) (rate(http_server_request_duration_seconds_bucket{${JOB}}[$__rate_interval])))`]:
        'p99',
    },
  },
  {
    title: 'Body bytes per second',
    unit: 'bytes',
    queries: {
      [`sum(rate(sallyport_request_bytes_total{${JOB}}[$__rate_interval]))`]: 'requests',
      [`sum(rate(sallyport_response_bytes_total{${JOB}}[$__rate_interval]))`]: 'responses',
    },
  },
]

const SESSIONS: readonly Panel[] = [
  { title: 'Sessions', unit: 'none', queries: { [`sallyport_sessions{${JOB}}`]: '{{instance}}' } },
  {
    title: 'Session changes',
    unit: 'none',
    queries: { [`sum by (change) (increase(sallyport_state_changes_total{${JOB}}[5m]))`]: '{{change}}' },
  },
  { title: 'Round trip', unit: 's', queries: { [`sallyport_ping_round_trip_seconds{${JOB}}`]: '{{instance}}' } },
  { title: 'Buffered', unit: 'bytes', queries: { [`sallyport_buffered_bytes{${JOB}}`]: '{{instance}}' } },
]

const PROCESS: readonly Panel[] = [
  {
    title: 'Time until certificates expire',
    unit: 's',
    queries: { [`sallyport_certificate_expiry_timestamp_seconds{${JOB}} - time()`]: '{{instance}} {{use}}' },
  },
  {
    title: 'CPU',
    unit: 'percentunit',
    queries: { [`sum by (instance) (rate(process_cpu_time_seconds_total{${JOB}}[$__rate_interval]))`]: '{{instance}}' },
  },
  { title: 'Memory', unit: 'bytes', queries: { [`process_memory_usage_bytes{${JOB}}`]: '{{instance}}' } },
  {
    title: 'Event loop delay, p99',
    unit: 's',
    queries: { [`nodejs_eventloop_delay_p99_seconds{${JOB}}`]: '{{instance}}' },
  },
]

export const DASHBOARDS: Readonly<Record<string, readonly Panel[]>> = {
  server: [
    ...EXCHANGES,
    ...SESSIONS,
    {
      title: 'Requests waiting for a client',
      unit: 'none',
      queries: { [`sallyport_requests_waiting{${JOB}}`]: '{{instance}}' },
    },
    {
      title: 'Clients refused',
      unit: 'none',
      queries: { [`sum by (reason) (increase(sallyport_handshakes_refused_total{${JOB}}[5m]))`]: '{{reason}}' },
    },
    {
      title: 'Directory: 0 connected, 1 presumed, 2 lost',
      unit: 'none',
      queries: { [`sallyport_directory_state{${JOB}}`]: '{{instance}}' },
    },
    {
      title: 'Replicas connected',
      unit: 'none',
      queries: { [`sallyport_replicas_connected{${JOB}}`]: '{{instance}}' },
    },
    ...PROCESS,
  ],
  client: [
    ...EXCHANGES,
    ...SESSIONS,
    {
      title: 'Requests by route',
      unit: 'reqps',
      queries: { [`sum by (route) (rate(sallyport_exchanges_total{${JOB}}[$__rate_interval]))`]: '{{route}}' },
    },
    { title: 'Active: 1, standby: 0', unit: 'none', queries: { [`sallyport_active{${JOB}}`]: '{{instance}}' } },
    {
      title: 'Time until the token expires',
      unit: 's',
      queries: { [`sallyport_token_expiry_timestamp_seconds{${JOB}} - time()`]: '{{instance}}' },
    },
    ...PROCESS,
  ],
  inbox: [
    {
      title: 'Webhooks accepted',
      unit: 'none',
      queries: { [`sum by (why) (increase(sallyport_inbox_accepted_total{${JOB}}[5m]))`]: '{{why}}' },
    },
    {
      title: 'Deliveries',
      unit: 'none',
      queries: { [`sum by (outcome) (increase(sallyport_inbox_attempts_total{${JOB}}[5m]))`]: '{{outcome}}' },
    },
    {
      title: 'Refused with 503',
      unit: 'none',
      queries: { [`sum by (reason) (increase(sallyport_inbox_refused_total{${JOB}}[5m]))`]: '{{reason}}' },
    },
    {
      title: 'Webhooks by state',
      unit: 'none',
      // Each server of a shared inbox reports the whole inbox.
      queries: { [`sallyport_inbox_messages{${JOB}}`]: '{{instance}} {{state}}' },
    },
    {
      title: 'Age of the oldest webhook',
      unit: 's',
      queries: { [`sallyport_inbox_oldest_age_seconds{${JOB}}`]: '{{instance}}' },
    },
    { title: 'Stored', unit: 'bytes', queries: { [`sallyport_inbox_bytes{${JOB}}`]: '{{instance}}' } },
    {
      title: 'Store: 1 up, 0 down',
      unit: 'none',
      queries: { [`sallyport_inbox_store_up{${JOB}}`]: '{{instance}}' },
    },
    { title: 'Longest commit', unit: 's', queries: { [`sallyport_inbox_commit_max_seconds{${JOB}}`]: '{{instance}}' } },
  ],
}

const DATASOURCE = { type: 'prometheus', uid: '$datasource' }
const WIDTH = 8
const HEIGHT = 7
const COLUMNS = 24 / WIDTH

/** The files that Grafana imports, path to text. */
export function dashboardFiles(): Map<string, string> {
  return new Map(
    Object.entries(DASHBOARDS).map(([name, panels]) => [
      `deploy/monitoring/dashboard-${name}.json`,
      `${JSON.stringify(dashboard(name, panels), undefined, 2)}\n`,
    ]),
  )
}

function dashboard(name: string, panels: readonly Panel[]): object {
  const job = name === 'client' ? 'sallyport-client' : 'sallyport-server'
  return {
    title: `Sallyport ${name}`,
    uid: `sallyport-${name}`,
    tags: ['sallyport'],
    schemaVersion: 38,
    editable: true,
    time: { from: 'now-1h', to: 'now' },
    refresh: '30s',
    templating: {
      list: [
        { name: 'datasource', label: 'Prometheus', type: 'datasource', query: 'prometheus' },
        {
          ...{ name: 'job', type: 'query', datasource: DATASOURCE, refresh: 2, includeAll: true, multi: true },
          query: { query: 'label_values(sallyport_build_info, job)', refId: 'jobs' },
          current: { text: [job], value: [job] },
        },
      ],
    },
    panels: panels.map(({ title, unit, queries }, at) => ({
      ...{ id: at + 1, title, type: 'timeseries', datasource: DATASOURCE },
      gridPos: { x: (at % COLUMNS) * WIDTH, y: Math.floor(at / COLUMNS) * HEIGHT, w: WIDTH, h: HEIGHT },
      fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 10, showPoints: 'never' } }, overrides: [] },
      options: { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi' } },
      targets: Object.entries(queries).map(([expr, legendFormat], i) => ({
        ...{ refId: String.fromCharCode(65 + i), datasource: DATASOURCE, expr, legendFormat },
      })),
    })),
  }
}
