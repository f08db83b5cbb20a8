import { expect, test } from 'vitest'
import { clientSettings } from '../../../cli/config/client.ts'
import { serverSettings } from '../../../cli/config/server.ts'
import { DEFAULT_LIMITS as SESSION_LIMITS } from '../../../protocol/yamux/limits.ts'
import { DEFAULT_LIMITS } from '../../../server/options.ts'

const byDefault = (settings: typeof serverSettings | typeof clientSettings, name: string) => {
  const { kind, default: fallback } = settings[
    name as keyof typeof settings
  ] as (typeof clientSettings)['limits.window']
  return kind.read(fallback)
}

test('the defaults of the server are those of the library', () => {
  const names = {
    handshakeMs: 'limits.handshake',
    handshakeBudget: 'limits.handshake-budget',
    handshakesWaiting: 'limits.handshakes-waiting',
    handshakesWaitingPerAddress: 'limits.handshakes-waiting-per-address',
    sessions: 'limits.sessions',
    sessionsPerRuntime: 'limits.sessions-per-runtime',
    replayBytes: 'limits.replay',
    replayTotalBytes: 'limits.replay-total',
    sessionBufferBytes: 'limits.session-buffer',
    processBufferBytes: 'limits.process-buffer',
    maxWindowBytes: 'limits.window',
    streams: 'limits.streams',
    pingIntervalMs: 'ping.interval',
    pingTimeoutMs: 'ping.timeout',
    corsKeepMs: 'limits.cors-keep',
  }
  const read = Object.fromEntries(Object.entries(names).map(([key, name]) => [key, byDefault(serverSettings, name)]))
  expect(read).toEqual(DEFAULT_LIMITS)
})

test('the defaults of the client are those of a session', () => {
  expect({
    maxStreams: byDefault(clientSettings, 'limits.streams'),
    maxWindowBytes: byDefault(clientSettings, 'limits.window'),
    sessionBufferBytes: byDefault(clientSettings, 'limits.session-buffer'),
    pingIntervalMs: byDefault(clientSettings, 'ping.interval'),
    pingTimeoutMs: byDefault(clientSettings, 'ping.timeout'),
  }).toEqual({
    maxStreams: SESSION_LIMITS.maxStreams,
    maxWindowBytes: SESSION_LIMITS.maxWindowBytes,
    sessionBufferBytes: SESSION_LIMITS.sessionBufferBytes,
    pingIntervalMs: SESSION_LIMITS.pingIntervalMs,
    pingTimeoutMs: SESSION_LIMITS.pingTimeoutMs,
  })
})
