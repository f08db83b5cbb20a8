/** Webhooks for a runtime's own host are kept if its token names the host, and only then. */
import { afterEach, expect, test } from 'vitest'
import { until } from '../../support/until.ts'
import { call, dial, leave, token } from '../fixture.ts'
import { ForgedDirectory } from '../forged-directory.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

const HOST = 'hooks.customer.example'
const RULES = [{ ...RULE, mode: 'always' as const }]

let ground: Ground
afterEach(() => ground.close())

async function start(directory = new ForgedDirectory()) {
  ground = await makeGround({}, { ownHosts: true, hold: { holdMs: 0, startupMs: 0 }, directory })
  return directory
}

async function connect(hosts: string[], inbox = RULES) {
  const { handler } = ground.receiver
  return dial(ground.server, { token: await token('demo', { hosts }), handler, hello: { inbox } })
}

async function post(body: string): Promise<number> {
  return (await call(ground.server, HOST, '/webhooks/a', { method: 'POST', body })).status
}

test('D3: none is kept for a runtime that has the host only by the directory, online or offline', async () => {
  const directory = await start()
  const client = await connect(['other.example'])
  directory.says(HOST, 'demo')
  expect(await post('there')).toBe(503)
  await leave(ground.server, client)
  expect(await post('away')).toBe(503)
  expect(await ground.messages()).toEqual([])
})

test.each([
  ['there are no rules', []],
  ['the rules are for other paths', [{ ...RULES[0]!, path: '/elsewhere' }]],
])('a request reaches the runtime if %s', async (_, rules) => {
  await start()
  await connect([HOST], rules)
  expect(await post('one')).toBe(200)
  expect(ground.receiver.bodies).toEqual(['one'])
})

test('they are kept while it is offline, even by a server that has restarted meanwhile', async () => {
  const directory = await start()
  await leave(ground.server, await connect([HOST]))
  directory.says(HOST, 'demo')
  expect(await post('one')).toBe(202)
  await ground.restart()
  expect(await post('two')).toBe(202)
  await connect([HOST])
  await until(() => ground.receiver.bodies.length === 2)
  expect([...ground.receiver.bodies].sort()).toEqual(['one', 'two'])
})

test('a fresh token takes effect at once, and webhooks kept before are still delivered', async () => {
  const directory = await start()
  directory.says(HOST, 'demo')
  const client = await connect([])
  ground.receiver.says = () => 503
  const renew = async (hosts: string[]) => {
    client.session.control({ type: 'reauth', token: await token('demo', { hosts }) })
    await client.message('reauth-ok')
  }
  await renew([HOST])
  expect(await post('one')).toBe(202)
  await renew([])
  expect(await post('two')).toBe(503)
  await leave(ground.server, client)
  ground.receiver.says = () => 200
  await connect([])
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(await ground.messages()).toMatchObject([{ state: 'delivered' }])
})

test('with a file of its own, a server follows the tokens of its clients although another instance is active elsewhere', async () => {
  const directory = await start()
  directory.says(HOST, 'demo')
  directory.says('demo', 'another')
  const client = await connect([])
  expect(await post('one')).toBe(503)
  client.session.control({ type: 'reauth', token: await token('demo', { hosts: [HOST] }) })
  await client.message('reauth-ok')
  expect(await post('two')).toBe(202)
})
