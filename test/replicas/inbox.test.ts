/** Servers that share a directory and an inbox in PostgreSQL. */
import { createHmac } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { answer, call, dial, HOST, leave } from '../server/fixture.ts'
import { Receiver, RULE } from '../server/inbox/fixture.ts'
import { unhurried } from '../support/busy.ts'
import { needs } from '../support/needs.ts'
import { Postgres } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { ReplicaGroup } from './fixture.ts'

describe.runIf(needs('redis', 'postgres'))('a shared inbox', () => {
  let group: ReplicaGroup
  let postgres: Postgres
  beforeAll(async () => {
    ;[group, postgres] = await Promise.all([ReplicaGroup.start(), Postgres.start()])
  })
  afterEach(async () => {
    await group.clear()
    await postgres.clear()
  })
  afterAll(async () => {
    await group.stop()
    await postgres.stop()
  })

  /** Two servers. Clients connect to the near one unless they say otherwise. */
  async function start(): Promise<{ near: Server; far: Server }> {
    const options = { inbox: { url: postgres.url, plaintext: true }, hold: { holdMs: 0 } }
    return { near: await group.add(options), far: await group.add(options) }
  }

  test('a server that stops waits for a delivery over another one, so that it is not made twice', async () => {
    const { near, far } = await start()
    const receiver = new Receiver(() => undefined)
    const hello = { inbox: [{ ...RULE, mode: 'always' as const }] }
    const announced = await dial(far, { hello })
    await dial(near, { handler: receiver.handler, hello })
    await leave(far, announced)
    expect((await call(far, HOST, '/webhooks/a', { method: 'POST', body: 'once' })).status).toBe(202)
    await until(() => receiver.got.length > 0)
    const closed = far.close({ graceMs: unhurried(20_000) })
    await setTimeout(unhurried(500))
    receiver.says = () => 200
    for (const { response } of receiver.got) answer(response, 200, 'late')
    await closed
    await until(async () => (await near.inbox!.list({ state: 'delivered', limit: 1 })).length === 1)
    expect(receiver.bodies).toEqual(['once'])
  })

  test('a server to which no client with a new secret is connected does not refuse what is signed with it', async () => {
    const { near, far } = await start()
    const join = (server: Server, instance: string, secret: string) => {
      const verify = { scheme: 'github' as const, secrets: [Buffer.from(secret).toString('base64')] }
      return dial(server, { hello: { instance, inbox: [{ ...RULE, verify }] } })
    }
    const post = async (secret: string) => {
      const signature = `sha256=${createHmac('sha256', secret).update('webhook').digest('hex')}`
      const headers = { 'x-hub-signature-256': signature }
      return (await call(far, HOST, '/webhooks/a', { method: 'POST', body: 'webhook', headers })).status
    }
    const old = await join(far, 'old', 'old')
    expect([await post('new'), await post('old')]).toEqual([401, 200])
    const client = await join(near, 'new', 'new')
    await leave(far, old)
    await until(async () => (await post('new')) !== 401)
    await leave(near, client)
    await until(() => far.stats().runtimes === 0)
    expect(await post('new')).toBe(202)
  })
})
