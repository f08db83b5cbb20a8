import { expect, test } from 'vitest'
import { clientSettings } from '../../../cli/config/client.ts'
import { serverSettings } from '../../../cli/config/server.ts'
import { DEFAULT_SESSION_LIMITS as SESSION_LIMITS, resolveSessionLimits } from '../../../protocol/wire/yamux/limits.ts'
import { DEFAULT_HOLD } from '../../../server/edge/hold.ts'
import { DEFAULT_SERVER_LIMITS } from '../../../server/options.ts'

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
  expect(read).toEqual(DEFAULT_SERVER_LIMITS)
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

/** By their names in a session: what a flag takes, least to most, and what it does not. */
test.each([
  ['limits.streams', 'maxStreams', ['1', '100000'], ['0', '100001']],
  ['limits.window', 'maxWindowBytes', ['1KiB', '16MiB'], ['0', '1023', '16777217', '1GiB']],
  ['limits.session-buffer', 'sessionBufferBytes', ['1KiB', '65536GiB'], ['0', '999999999999GiB']],
  ['ping.interval', 'pingIntervalMs', ['1s', '20s'], ['0s', '21s']],
  ['ping.timeout', 'pingTimeoutMs', ['1s', '10m'], ['0s', '11m']],
] as const)('what --%s takes, a session takes', (name, limit, taken, refused) => {
  for (const settings of [serverSettings, clientSettings]) {
    const { kind } = settings[name]
    for (const text of taken) expect(() => resolveSessionLimits({ [limit]: kind.read(text) })).not.toThrow()
    for (const text of refused) expect(() => kind.read(text)).toThrow(/^expected /)
  }
})
