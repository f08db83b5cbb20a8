import { expect, test } from 'vitest'
import { describeStatus } from '../../cli/status-text.ts'

const NOW = Date.UTC(2026, 10, 21, 4, 0, 0)

test('a server with a session', () => {
  const status = {
    component: 'server',
    version: '0.1.0',
    startedAt: '2026-11-21T03:56:50.000Z',
    ready: true,
    replica: 'a',
    streams: 3,
    handshakesRefused: { expired: 1 },
    openSessions: [
      {
        id: 's',
        runtime: 'demo',
        state: 'open',
        active: true,
        address: '192.0.2.1',
        connectedSince: '2026-11-21T03:57:00.000Z',
        streams: 3,
        rttMs: Math.PI,
      },
    ],
  }
  expect(describeStatus(status, { now: NOW })).toBe(
    [
      'server 0.1.0: ready, running for 3 min 10 s',
      '  replica a',
      '  streams 3',
      '  runtime  state  active  address    connectedSince            streams  rttMs',
      '  demo     open   true    192.0.2.1  2026-11-21T03:57:00.000Z  3        3.1',
      '',
    ].join('\n'),
  )
})

test('a client without a session says why, and nothing in it steers the terminal', () => {
  const status = {
    component: 'client',
    version: '0.1.0',
    startedAt: '2026-11-21T04:00:00.000Z',
    ready: false,
    connections: [{ connection: 0, attempts: 3, lastError: 'nothing listens\u001b[2J' }],
    sessions: [],
  }
  expect(describeStatus(status, { now: NOW })).toBe(
    'client 0.1.0: NOT READY, running for 0 s\n  connection 0: nothing listens?[2J\n',
  )
})

test.each([[null], ['x'], [{}], [[]], [{ openSessions: 'x', connections: 7 }]])('nonsense is no crash: %j', answer => {
  expect(describeStatus(answer, { now: NOW })).toContain('NOT READY')
})
