/** Webhooks that wait for a session, as any request may, while others wait in the inbox. */
import { afterEach, expect, test } from 'vitest'
import { unhurried } from '../../support/busy.ts'
import { until } from '../../support/until.ts'
import { type Answer, leave } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
afterEach(() => ground.close())

/** One that is `soon` is stored while it waits, and one that is `stored` at once. */
const RULES = [
  RULE,
  { ...RULE, route: 'soon', headers: ['x-kind', 'soon'], answerWithinMs: unhurried(1000) },
  { ...RULE, route: 'stored', headers: ['x-kind', 'stored'], mode: 'always' as const },
]

/** The runtime has just left. Webhooks wait for it to come back. */
async function holding(): Promise<(kind: string) => Promise<{ answer: Promise<Answer> }>> {
  ground = await makeGround({ attemptMs: 1000 }, { hold: { holdMs: 60_000 } })
  await leave(ground.server, await ground.connect(RULES))
  return async kind => {
    const { held } = ground.server.stats()
    const answer = ground.post(kind, { headers: { 'x-kind': kind } })
    if (kind !== 'stored') await until(() => ground.server.stats().held > held)
    return { answer }
  }
}

test('once an earlier webhook is stored in its lane, it goes behind that one', async () => {
  const post = await holding()
  const soon = await post('soon')
  const held = await post('held')
  expect((await soon.answer).status).toBe(202)
  await until(() => ground.server.stats().inbox!.attempts.failed === 1)
  await ground.connect(RULES)
  expect((await held.answer).status).toBe(202)
  expect(ground.server.stats().inbox!.accepted).toMatchObject({ slow: 1, offline: 1 })
  await until(() => ground.receiver.got.length === 2)
  expect(ground.receiver.bodies).toEqual(['soon', 'held'])
})

test('it does not go behind a later one that is stored', async () => {
  const post = await holding()
  const held = await post('held')
  const stored = await post('stored')
  expect((await stored.answer).status).toBe(202)
  await ground.connect(RULES)
  expect((await held.answer).status).toBe(200)
  await until(() => ground.receiver.got.length === 2)
  expect(ground.receiver.bodies).toEqual(['held', 'stored'])
})

test('once its runtime is paused, it is stored', async () => {
  const post = await holding()
  const held = await post('held')
  await ground.server.inbox!.pause('demo', true)
  await ground.connect(RULES)
  expect((await held.answer).status).toBe(202)
  expect(ground.receiver.bodies).toEqual([])
  await ground.server.inbox!.pause('demo', false)
  await until(() => ground.receiver.bodies.length === 1)
})
