import { expect, test } from 'vitest'
import { describeStatus } from '../../cli/status-text.ts'

const NOW = Date.UTC(2026, 10, 21, 4, 0, 0)
const lines = (...text: string[]) => `${text.join('\n')}\n`

test('a server with a session', () => {
  const status = {
    component: 'server',
    version: '0.1.0',
    startedAt: '2026-11-21T03:56:50.000Z',
    ready: true,
    replica: 'a',
    runtimes: 1,
    sessions: 1,
    streams: 3,
    bufferedBytes: 1_572_864,
    handshakesRefused: { expired: 2, 'bad-token': 1 },
    openSessions: [
      {
        id: '9066e9d5-d3a2-4cea-9065-10b057515b87',
        runtime: 'demo',
        instance: 'pod-1',
        connection: 0,
        replica: 'a',
        epoch: 4,
        state: 'open',
        active: true,
        address: '192.0.2.1',
        connectedSince: '2026-11-21T03:57:00.000Z',
        tokenEnds: '2026-11-21T04:30:00.000Z',
        streams: 3,
        bufferedBytes: 1_572_864,
        rttMs: Math.PI,
      },
    ],
    recent: [
      { at: '2026-11-21T03:58:00.000Z', event: 'handshake refused', reason: 'the token ended' },
      { at: '2026-11-21T03:57:00.000Z', event: 'session ready', session: '9066e9d5-d3a2-4cea-9065-10b057515b87' },
    ],
  }
  expect(describeStatus(status, { now: NOW })).toBe(
    lines(
      'server 0.1.0: ready, running for 3 min 10 s',
      '  replica a: 1 runtime, 1 session, 3 streams, 1.5 MiB buffered',
      '  handshakes refused: expired 2, bad-token 1',
      '  SESSION   RUNTIME  INSTANCE  CONN  REPLICA  EPOCH  STATE  TRAFFIC  AGE    ROUND TRIP  STREAMS  BUFFERED  FROM       TOKEN EXPIRES',
      '  9066e9d5  demo     pod-1     0     a        4      open   active   3 min  3.1 ms      3        1.5 MiB   192.0.2.1  in 30 min',
      '',
      '  AGO    EVENT              SESSION   REASON',
      '  2 min  handshake refused  -         the token ended',
      '  3 min  session ready      9066e9d5  -',
    ),
  )
})

test('a standby client, with one connection up and one down', () => {
  const status = {
    component: 'client',
    version: '0.1.0',
    startedAt: '2026-11-21T03:00:00.000Z',
    ready: true,
    instance: 'pod-2',
    runtime: 'demo',
    epoch: 7,
    active: false,
    tokenEnds: '2026-11-21T03:59:00.000Z',
    connections: [
      { connection: 0, attempts: 1 },
      {
        connection: 1,
        attempts: 3,
        lastError: 'refused (401): your token expired',
        lastErrorAt: '2026-11-21T03:59:50.000Z',
      },
    ],
    sessions: [
      {
        connection: 0,
        session: 'short',
        replica: 'b',
        state: 'ready',
        connectedSince: '2026-11-21T03:01:00.000Z',
        rttMs: 87.4,
        streams: 0,
        bufferedBytes: 0,
      },
    ],
  }
  expect(describeStatus(status, { now: NOW })).toBe(
    lines(
      'client 0.1.0: ready, running for 1 h',
      '  runtime demo, instance pod-2: standby (another instance gets the traffic), epoch 7',
      '  token expired 1 min ago',
      '  CONN  SESSION  REPLICA  STATE  AGE     ROUND TRIP  STREAMS  BUFFERED  LAST ERROR',
      '  0     short    b        ready  59 min  87 ms       0        0 B       -',
      '  1     -        -        none   -       -           -        -         10 s ago: refused (401): your token expired',
    ),
  )
  const away = describeStatus({ ...status, ready: false, sessions: [] }, { now: NOW })
  expect(away).toContain('  runtime demo, instance pod-2: not connected, epoch 7\n')
})

test('a client that was never in service, and nothing in it controls the terminal', () => {
  const status = {
    component: 'client',
    version: '0.1.0',
    startedAt: '2026-11-21T04:00:00.000Z',
    ready: false,
    instance: 'pod-1',
    runtime: '',
    epoch: 0,
    connections: [{ connection: 0, attempts: 3, lastError: 'nothing listens\u001b[2J' }],
    sessions: [],
  }
  expect(describeStatus(status, { now: NOW })).toBe(
    lines(
      'client 0.1.0: NOT READY, running for 0 s',
      '  runtime -, instance pod-1: not in service yet',
      '  CONN  STATE  LAST ERROR',
      '  0     none   nothing listens?[2J',
    ),
  )
})

test('a router', () => {
  const status = {
    component: 'router',
    version: '0.1.0',
    startedAt: '2026-11-21T04:00:00.000Z',
    ready: true,
    active: 2,
  }
  expect(describeStatus(status, { now: NOW })).toBe(lines('router 0.1.0: ready, running for 0 s', '  active 2'))
})

test.each([
  [null],
  ['x'],
  [{}],
  [[]],
  [{ component: 'server', openSessions: 'x', handshakesRefused: 7 }],
  [{ component: 'client', connections: 7, sessions: [null], recent: [1] }],
])('nonsense does not crash it: %j', answer => {
  expect(describeStatus(answer, { now: NOW })).toContain('NOT READY')
})

test('what a peer wrote can neither control the terminal nor reverse the text', () => {
  const text = describeStatus({ component: 'server\u001b[31m\u009b31m\u007f\u202ereplica', version: 'zürich 日本' })
  expect(text).toMatch(/^server\?\[31m\?31m\?\?replica zürich 日本: /)
})
