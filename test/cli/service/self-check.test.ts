import { afterEach, expect, test } from 'vitest'
import { checkWhenAway } from '../../../cli/service/self-check.ts'
import { type ClientOptions, createTunnel, type Tunnel } from '../../../client/index.ts'
import { recordingLogger } from '../../router/support.ts'
import { type Pair, startPair } from '../../support/pair.ts'
import { makeSecrets } from '../../support/secrets.ts'

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

function watched(options: ClientOptions, afterMs: number): { tunnel: Tunnel; lines: string[] } {
  const { logger, lines } = recordingLogger()
  const tunnel = createTunnel(options)
  const checking = checkWhenAway(tunnel, options, logger, afterMs)
  stops.push(
    () => tunnel.close({ graceMs: 0 }),
    () => checking.close(),
  )
  return { tunnel, lines }
}

test('a client that finds nobody says once at which step, and what helps', async () => {
  const secrets = await makeSecrets()
  const token = await secrets.token('demo')
  const { lines } = watched({ url: 'wss://127.0.0.1:1', token, target: 'http://127.0.0.1:1', proxy: '' }, 100)
  await expect.poll(() => lines, { timeout: 10_000 }).toHaveLength(1)
  expect(lines[0]).toMatch(
    /^warn no session for 0\.1 s; tcp of 127\.0\.0\.1:1: nothing listens at .* Refused: nothing listens/,
  )
  // It dials on meanwhile, and says no more of it.
  await new Promise(resolve => setTimeout(resolve, 500))
  expect(lines).toHaveLength(1)
})

test('one that is connected says nothing; when its server has gone, it does', async () => {
  const pair: Pair = await startPair({ target: 'http://127.0.0.1:1' })
  stops.push(() => pair.stop())
  const { secrets, server } = pair
  const url = `wss://127.0.0.1:${server.controlAddress!.port}`
  const token = await secrets.token('other')
  const options = { url, token, ca: secrets.ca, target: 'http://127.0.0.1:1', proxy: '' }
  const { tunnel, lines } = watched(options, 1000)
  await tunnel.connected()
  await new Promise(resolve => setTimeout(resolve, 1500))
  expect(lines).toEqual([])
  await server.close({ graceMs: 0 })
  await expect.poll(() => lines, { timeout: 10_000 }).toEqual([expect.stringMatching(/^warn no session for 1 s; tcp/)])
})
