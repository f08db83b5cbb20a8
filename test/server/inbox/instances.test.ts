/** Whose inbox rules hold while several instances of a runtime are connected, which may be of different versions. */
import { Buffer } from 'node:buffer'
import { createHmac } from 'node:crypto'
import { afterEach, expect, test } from 'vitest'
import { dial, leave, type TestClient } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
afterEach(() => ground.close())

/** The status of a webhook, once the runtime is offline. */
async function afterwards(...clients: TestClient[]): Promise<number> {
  for (const client of clients) await leave(ground.server, client)
  return (await ground.post('webhook')).status
}

/** Connects an instance of the runtime. */
const connect = (instance: string, { keeps, lastEpoch = 0 }: { keeps: boolean; lastEpoch?: number }) =>
  dial(ground.server, { hello: { instance, lastEpoch, ...(keeps && { inbox: [RULE] }) } })

/** Whether the rules that should hold keep a webhook, and the status that shows it. */
const EITHER = [
  [true, 202],
  [false, 503],
] as const

test.each(EITHER)('the rules of an instance that takes over hold (%o)', async (keeps, status) => {
  ground = await makeGround()
  const old = await connect('old', { keeps: !keeps })
  expect(await afterwards(old, await connect('new', { keeps }))).toBe(status)
})

test.each(EITHER)('a standby that connects again changes no rules (%o)', async (keeps, status) => {
  ground = await makeGround()
  const old = await connect('old', { keeps: !keeps })
  const active = await connect('new', { keeps })
  // Changes are written in order, so what the active one announced has been written then.
  await ground.server.inbox!.pause('demo', false)
  const again = await connect('old', { keeps: !keeps, lastEpoch: 1 })
  expect(await afterwards(old, again, active)).toBe(status)
})

test.each(EITHER)(
  'once a newer instance has left, the rules of the older one hold again (%o)',
  async (keeps, status) => {
    ground = await makeGround()
    const old = await connect('old', { keeps })
    const failed = await connect('new', { keeps: !keeps })
    expect(await afterwards(failed, old)).toBe(status)
  },
)

test.each(EITHER)(
  'rules that an instance changed while it stood by hold once it is active again (%o)',
  async (keeps, status) => {
    ground = await makeGround()
    const first = await connect('old', { keeps: !keeps })
    const active = await connect('new', { keeps: !keeps })
    const changed = await connect('old', { keeps, lastEpoch: 1 })
    await leave(ground.server, active)
    expect(await afterwards(first, changed)).toBe(status)
  },
)

test('a standby that connects again changes no secrets, either', async () => {
  ground = await makeGround()
  const [before, now] = [Buffer.from('before'), Buffer.from('now')]
  const join = (instance: string, secret: Buffer, lastEpoch = 0) => {
    const rule = { ...RULE, verify: { scheme: 'github' as const, secrets: [secret.toString('base64')] } }
    return dial(ground.server, { hello: { instance, lastEpoch, inbox: [rule] } })
  }
  const post = async (secret: Buffer) => {
    const signature = `sha256=${createHmac('sha256', secret).update('webhook').digest('hex')}`
    return (await ground.post('webhook', { headers: { 'x-hub-signature-256': signature } })).status
  }
  const old = await join('old', before)
  await join('new', now)
  await leave(ground.server, old)
  await join('old', before, 1)
  expect([await post(before), await post(now)]).toEqual([401, 200])
})
