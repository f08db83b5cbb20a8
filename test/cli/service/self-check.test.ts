import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import type { ClientConfig } from '../../../cli/config/client.ts'
import { loadTrust, watchTrust } from '../../../cli/service/client-trust.ts'
import { checkWhenAway } from '../../../cli/service/self-check.ts'
import { type ClientOptions, createTunnel, type Tunnel } from '../../../client/index.ts'
import { recordingLogger } from '../../router/support.ts'
import { type Pair, startPair } from '../../support/pair.ts'
import { makeSecrets } from '../../support/secrets.ts'

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

function dial(options: ClientOptions): Tunnel {
  const tunnel = createTunnel(options)
  stops.push(() => tunnel.close({ graceMs: 0 }))
  return tunnel
}

/** The lines of the log. */
function watch(tunnel: Tunnel, options: ClientOptions, afterMs: number): string[] {
  const { logger, lines } = recordingLogger()
  const checking = checkWhenAway(tunnel, () => options, logger, afterMs)
  stops.push(() => checking.close())
  return lines
}

test('a client that cannot connect logs once which step fails, and what helps', async () => {
  const secrets = await makeSecrets()
  const token = await secrets.token('demo')
  const options = { url: 'wss://127.0.0.1:1', token, target: 'http://127.0.0.1:1', proxy: '' }
  const lines = watch(dial(options), options, 100)
  await expect.poll(() => lines).toHaveLength(1)
  expect(lines[0]).toMatch(
    /^warn no session for 0\.1 s; the check "tcp" fails: nothing is listening at .* Refused: nothing is listening/,
  )
  // It goes on dialling, and says no more about it.
  await new Promise(resolve => setTimeout(resolve, 500))
  expect(lines).toHaveLength(1)
})

test('what is wrong with its token is told in that line only', async () => {
  const { secrets, server, stop } = await startPair({ target: 'http://127.0.0.1:1' })
  stops.push(stop)
  const url = `wss://127.0.0.1:${server.controlAddress!.port}`
  const token = await secrets.token('other', '1s')
  await new Promise(resolve => setTimeout(resolve, 1100))
  const { logger, lines } = recordingLogger()
  const options = { url, token, ca: secrets.ca, target: 'http://127.0.0.1:1', proxy: '' }
  const checking = checkWhenAway(
    dial({ ...options, url: 'wss://127.0.0.1:1' }),
    () => ({ ...options, logger }),
    logger,
    100,
  )
  stops.push(() => checking.close())
  await expect.poll(() => lines).not.toEqual([])
  expect(lines).toEqual([expect.stringMatching(/^warn no session for 0\.1 s; the check "token" fails: it expired/)])
})

test('a connected client logs nothing until its server is gone', async () => {
  const pair: Pair = await startPair({ target: 'http://127.0.0.1:1' })
  stops.push(() => pair.stop())
  const { secrets, server } = pair
  const url = `wss://127.0.0.1:${server.controlAddress!.port}`
  const token = await secrets.token('other')
  const options = { url, token, ca: secrets.ca, target: 'http://127.0.0.1:1', proxy: '' }
  const tunnel = dial(options)
  await tunnel.connected()
  const lines = watch(tunnel, options, 1000)
  await new Promise(resolve => setTimeout(resolve, 1500))
  expect(lines).toEqual([])
  await server.close({ graceMs: 0 })
  await expect.poll(() => lines).toEqual([expect.stringMatching(/^warn no session for 1 s; the check "tcp" fails/)])
})

test('the check uses reloaded authorities', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-self-check-'))
  stops.push(() => rmSync(folder, { recursive: true }))
  const ca = join(folder, 'ca.pem')
  const elsewhere = await makeSecrets()
  writeFileSync(ca, elsewhere.ca)
  const { secrets, server, stop } = await startPair({ target: 'http://127.0.0.1:1' })
  stops.push(stop)
  const config = { ca: [ca] } as unknown as ClientConfig
  const { logger, lines } = recordingLogger()
  const loaded = await loadTrust(config)
  const url = `wss://127.0.0.1:${server.controlAddress!.port}`
  // This server knows nobody who could have signed it.
  const token = await elsewhere.token('demo')
  const options = { url, token, ...loaded, target: 'http://127.0.0.1:1', proxy: '' }
  const tunnel = dial(options)
  const trust = watchTrust(config, loaded, tunnel, logger)
  stops.push(() => trust.close())
  writeFileSync(ca, secrets.ca)
  await expect.poll(() => lines).toContain('info certificates reloaded')
  const checking = checkWhenAway(tunnel, () => ({ ...options, ...trust.inForce() }), logger, 100)
  stops.push(() => checking.close())
  const warnings = () => lines.filter(line => line.startsWith('warn'))
  await expect.poll(warnings).toEqual([expect.stringMatching(/^warn .*; the check "authentication" fails/)])
})
