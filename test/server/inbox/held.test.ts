/** Webhooks that wait for a session, as any request may, while others wait in the inbox. */
import { afterEach, expect, test } from 'vitest'
import { until } from '../../support/until.ts'
import { type Answer, leave } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
afterEach(() => ground.close())

const STORED = { 'x-kind': 'stored' }
const RULES = [RULE, { ...RULE, route: 'stored', headers: ['x-kind', 'stored'], mode: 'always' as const }]

/** The runtime has just left, and a webhook waits for it to come back. */
async function holding(): Promise<{ held: Promise<Answer> }> {
  ground = await makeGround({}, { hold: { holdMs: 60_000 } })
  await leave(ground.server, await ground.connect(RULES))
  const held = ground.post('held')
  await until(() => ground.server.stats().held === 1)
  return { held }
}

test('once another webhook waits in its lane, it goes behind that one', async () => {
  const { held } = await holding()
  expect((await ground.post('stored', { headers: STORED })).status).toBe(202)
  await ground.connect(RULES)
  expect((await held).status).toBe(202)
  await until(() => ground.receiver.got.length === 2)
  expect(ground.receiver.bodies).toEqual(['stored', 'held'])
})

test('webhooks in other lanes are no reason to store it', async () => {
  const { held } = await holding()
  expect((await ground.post('stored', { path: '/webhooks/b', headers: STORED })).status).toBe(202)
  await ground.connect(RULES)
  expect((await held).status).toBe(200)
})

test('once its runtime is paused, it is stored', async () => {
  const { held } = await holding()
  await ground.server.inbox!.pause('demo', true)
  await ground.connect(RULES)
  expect((await held).status).toBe(202)
  expect(ground.receiver.bodies).toEqual([])
  await ground.server.inbox!.pause('demo', false)
  await until(() => ground.receiver.bodies.length === 1)
})
