/**
 * D6: a server's wall clock decides on tokens and certificates, and nothing else: its steps end no session and refuse
 * nothing.
 */
import { readFileSync } from 'node:fs'
import { afterEach, expect, test } from 'vitest'
import { softwareName } from '../../protocol/base/version.ts'
import type { Server } from '../../server/server.ts'
import { answer, call, DOMAIN, dial, hanging, startServer, token } from './fixture.ts'

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

test.each([
  ['back', -3_600_000],
  ['on', 600_000],
])('D6: a step %s', async (_name, stepMs) => {
  let skewMs = 0
  server = await startServer({ clock: () => Date.now() + skewMs })
  const client = await dial(server, { token: await token('demo', { ttl: '2h' }) })
  // What is timed has begun.
  client.session.control({ type: 'notice', message: 'before' })
  client.session.control({ type: 'reauth', token: await token('demo', { ttl: '2h' }) })
  await client.message('reauth-ok')
  skewMs = stepMs
  for (let i = 0; i < 5; i++) client.session.control({ type: 'notice', message: 'after' })
  const now = await token('demo', { ttl: '2h', now: Date.now() + stepMs } as object)
  client.session.control({ type: 'reauth', token: now })
  await client.message('reauth-ok')
  expect(client.session.closed).toBe(false)
  expect((await call(server, `demo.${DOMAIN}`)).status).toBe(200)
})

test('D6, W6: a step past the end of a token: its client is told to leave, though no timer is due', async () => {
  let skewMs = 0
  server = await startServer({ clock: () => Date.now() + skewMs })
  const { handler, begun } = hanging()
  const idle = await dial(server, { runtime: 'idle', token: await token('idle', { ttl: '1h' }) })
  const busy = await dial(server, { token: await token('demo', { ttl: '1h' }), handler })
  const stays = await dial(server, { token: await token('stays', { ttl: '3h' }) })
  const calling = call(server, `demo.${DOMAIN}`)
  const response = await begun
  skewMs = 2 * 3_600_000
  const { deadlineMs } = await busy.message('drain')
  expect(deadlineMs).toBeLessThanOrEqual(60_000)
  expect((await idle.closed).code).toBe(4401)
  answer(response, 200, 'what was open ends in peace')
  expect((await calling).text).toBe('what was open ends in peace')
  expect((await busy.closed).code).toBe(4401)
  expect(stays.messages.filter(({ type }) => type === 'drain')).toEqual([])
  expect((await call(server, `stays.${DOMAIN}`)).status).toBe(200)
})

test('the version is the one in package.json', async () => {
  server = await startServer()
  const client = await dial(server)
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  const welcome = client.messages.find(({ type }) => type === 'welcome')
  expect([softwareName(), welcome]).toEqual([
    `sallyport/${version}`,
    expect.objectContaining({ software: softwareName() }),
  ])
})
