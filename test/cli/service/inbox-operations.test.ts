/**
 * What an operator's commands reach of the webhooks that a server keeps: all of them, however many are listed at a
 * time.
 */
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  dropMessages,
  listMessages,
  readMessage,
  readPart,
  replayMessages,
} from '../../../cli/service/inbox-operations.ts'
import { type Ground, makeGround, RULE } from '../../server/inbox/fixture.ts'
import { until } from '../../support/until.ts'

const DEAD = 3
const DELIVERED = 5
const PAGE = 2

let ground: Ground
/** Dead letters, and behind them what has been delivered since. */
beforeEach(async () => {
  ground = await makeGround()
  ground.receiver.says = (_got, index) => (index < DEAD ? 410 : 200)
  await ground.connect([{ ...RULE, mode: 'always' }])
  for (let sent = 1; sent <= DEAD + DELIVERED; sent++) {
    expect((await ground.post(String(sent))).status).toBe(202)
    await until(() => ground.receiver.got.length === sent)
  }
  await until(async () => (await ground.messages('delivered')).length === DELIVERED)
})
afterEach(() => ground.close())

test("a replay reaches a runtime's dead letters behind everything delivered since", async () => {
  const dead = await ground.messages('dead')
  expect(dead).toHaveLength(DEAD)
  const done = await replayMessages(ground.server, { runtime: 'demo' }, PAGE)
  expect(done.sort()).toEqual(dead.map(({ id }) => id).sort())
  await until(async () => (await ground.messages('delivered')).length === DEAD + DELIVERED)
  await expect(replayMessages(ground.server, { runtime: 'demo', state: 'dead' }, PAGE)).resolves.toEqual([])
})

test('an empty text is no time, from which a drop would take everything', async () => {
  const drop = dropMessages(ground.server, { runtime: 'demo', since: '' })
  await expect(drop).rejects.toThrow('since must be a number of milliseconds')
  expect(await ground.messages('delivered')).toHaveLength(DELIVERED)
})

test.each([
  ['of a runtime', {}, 0],
  ['in one state', { state: 'dead' }, DELIVERED],
])('a drop reaches all webhooks %s', async (_which, filter, left) => {
  const done = await dropMessages(ground.server, { runtime: 'demo', ...filter }, PAGE)
  expect(new Set(done).size).toBe(DEAD + DELIVERED - left)
  expect(await ground.messages()).toHaveLength(left)
})

test('a lane is named by what the list shows of it, if no other one begins like that', async () => {
  const [{ lane } = { lane: '' }] = (await listMessages(ground.server, { limit: 1 })) as { lane: string }[]
  for (let hook = 0; hook < 17; hook++) await ground.post('other', { path: `/webhooks/other-${hook}` })
  await until(async () => (await ground.messages('delivered')).length === DELIVERED + 17)
  const name = lane.slice(0, 8)
  expect(await listMessages(ground.server, { lane: name })).toHaveLength(DEAD + DELIVERED)
  const lanes = ((await listMessages(ground.server, {})) as { lane: string }[]).map(one => one.lane)
  const first = lanes.map(one => one[0]!).find((one, i, all) => all.slice(i + 1).includes(one) && one !== lane[0])!
  const ambiguous = { runtime: 'demo', lane: first }
  await expect(dropMessages(ground.server, ambiguous)).rejects.toThrow(`several lanes begin with ${first}`)
  await expect(replayMessages(ground.server, ambiguous)).rejects.toThrow(`several lanes begin with ${first}`)
  const paged = dropMessages(ground.server, ambiguous, 1)
  await expect(paged).rejects.toThrow(`several lanes begin with ${first}`)
  expect(await replayMessages(ground.server, { runtime: 'demo', lane: name }, PAGE)).toHaveLength(DEAD)
  await until(async () => (await ground.messages('dead')).length === 0)
  expect(await dropMessages(ground.server, { runtime: 'demo', lane: name }, PAGE)).toHaveLength(DEAD + DELIVERED)
  expect(await ground.messages()).toHaveLength(17)
})

test.each(['0.5', '-1', '0', '', '1e3', '9'.repeat(20), 'NaN'])(
  'a limit of %j is refused, and the store stays open',
  async limit => {
    await expect(listMessages(ground.server, { limit })).rejects.toThrow('limit must be a whole number from 1')
    await expect(readPart(ground.server, { id: 'a', part: limit === '0' ? '10001' : limit })).rejects.toThrow(
      'part must be',
    )
    expect(await listMessages(ground.server, { limit: '2' })).toHaveLength(2)
    expect(ground.server.stats().inbox!.store.open).toBe(true)
  },
)

test('a webhook whose head is damaged is listed and read without it, and its parts as they are', async () => {
  const id = (await ground.messages('dead'))[0]!.id
  await ground.server.close({ graceMs: 0 })
  const database = new DatabaseSync(ground.path)
  database.prepare('UPDATE parts SET bytes = ? WHERE id = ? AND n = 0').run(Buffer.from('{damaged'), id)
  database.close()
  await ground.restart()
  const [read] = await readMessage(ground.server, { id })
  expect(read).toMatchObject({ id, head: undefined, body: undefined })
  const head = Buffer.from('{damaged').toString('base64')
  await expect(readPart(ground.server, { id, part: '0' })).resolves.toEqual([{ part: head }])
})
