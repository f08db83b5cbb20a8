import { expect, test } from 'vitest'
import { clientSettings } from '../../../cli/config/client.ts'
import { serverSettings } from '../../../cli/config/server.ts'
import { DEFAULT_LIMITS as SESSION_LIMITS } from '../../../protocol/yamux/limits.ts'
import { DEFAULT_HOLD } from '../../../server/edge/hold.ts'
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
    handshakesUnderWay: 'limits.handshakes-under-way',
    sessions: 'limits.sessions',
    sessionsPerRuntime: 'limits.sessions-per-runtime',
    sessionsPerAddress: 'limits.sessions-per-address',
    exchangesPerRuntime: 'limits.exchanges-per-runtime',
    requestRatePerRuntime: 'limits.request-rate-per-runtime',
    byteRatePerRuntime: 'limits.byte-rate-per-runtime',
    bufferBytesPerRuntime: 'limits.buffer-per-runtime',
    exchangesPerAddress: 'limits.exchanges-per-address',
    requestRatePerAddress: 'limits.request-rate-per-address',
    byteRatePerAddress: 'limits.byte-rate-per-address',
    replayBytes: 'limits.replay',
    replayTotalBytes: 'limits.replay-total',
    sessionBufferBytes: 'limits.session-buffer',
    processBufferBytes: 'limits.process-buffer',
    maxWindowBytes: 'limits.window',
    streams: 'limits.streams',
    pingIntervalMs: 'ping.interval',
    pingTimeoutMs: 'ping.timeout',
    responseHeadMs: 'limits.response-head',
    corsKeepMs: 'limits.cors-keep',
  }
  const read = Object.fromEntries(Object.entries(names).map(([key, name]) => [key, byDefault(serverSettings, name)]))
  expect(read).toEqual(DEFAULT_LIMITS)
  const hold = {
    holdMs: 'hold.time',
    forgetMs: 'hold.forget',
    startupMs: 'hold.startup',
    requestsPerRuntime: 'hold.requests-per-runtime',
    bytesPerRuntime: 'hold.bytes-per-runtime',
    requests: 'hold.requests',
    bytes: 'hold.bytes',
  }
  const held = Object.fromEntries(Object.entries(hold).map(([key, name]) => [key, byDefault(serverSettings, name)]))
  expect(held).toEqual(DEFAULT_HOLD)
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
