/** Servers that share a directory and an inbox in PostgreSQL. */
import { createHmac } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { answer, call, dial, HOST, leave } from '../server/fixture.ts'
import { Receiver, RULE } from '../server/inbox/fixture.ts'
import { unhurried } from '../support/busy.ts'
import { needs } from '../support/needs.ts'
import { Postgres } from '../support/postgres.ts'
import { Relay } from '../support/relay.ts'
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
  async function start({ farUrl = postgres.url } = {}): Promise<{ near: Server; far: Server }> {
    const optionsOf = (url: string) => ({ inbox: { url, plaintext: true }, hold: { holdMs: 0 } })
    return { near: await group.add(optionsOf(postgres.url)), far: await group.add(optionsOf(farUrl)) }
  }

  /** A client whose rules have this secret. Without one, it has no rules. */
  const join = (server: Server, instance: string, secret?: string) => {
    if (secret === undefined) return dial(server, { hello: { instance } })
    const verify = { scheme: 'github' as const, secrets: [Buffer.from(secret).toString('base64')] }
    return dial(server, { hello: { instance, inbox: [{ ...RULE, verify }] } })
  }
  const post = async (server: Server, secret: string) => {
    const signature = `sha256=${createHmac('sha256', secret).update('webhook').digest('hex')}`
    const headers = { 'x-hub-signature-256': signature }
    return (await call(server, HOST, '/webhooks/a', { method: 'POST', body: 'webhook', headers })).status
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
    const old = await join(far, 'old', 'old')
    expect([await post(far, 'new'), await post(far, 'old')]).toEqual([401, 200])
    const client = await join(near, 'new', 'new')
    await leave(far, old)
    await until(async () => (await post(far, 'new')) !== 401)
    await leave(near, client)
    await until(() => far.stats().runtimes === 0)
    expect(await post(far, 'new')).toBe(202)
  })

  /** Two servers, and the store of the far one can be taken away. */
  async function startApart() {
    const relay = await Relay.start({ port: postgres.port })
    onTestFinished(() => relay.stop())
    const servers = await start({ farUrl: `postgres://sallyport@127.0.0.1:${relay.port}/sallyport` })
    const isOpen = () => servers.far.stats().inbox!.store.open
    const take = async () => {
      relay.target = 0
      relay.cut()
      await until(() => !isOpen())
    }
    const giveBack = async () => {
      relay.target = postgres.port
      await until(isOpen)
    }
    return { ...servers, take, giveBack }
  }

  test('rules that a server could not write do not replace those that were announced since', async () => {
    const { near, far, take, giveBack } = await startApart()
    await take()
    const old = await join(far, 'old', 'old')
    await join(near, 'new', 'new')
    await leave(far, old)
    await giveBack()
    await until(async () => (await post(far, 'new')) !== 401)
    expect(await post(near, 'old')).toBe(401)
  })

  /** The runtimes whose rules are stored. Of those that were withdrawn, it is only stored that there are none. */
  const storedRules = async () => {
    const rows = await postgres.query('SELECT runtime, rules FROM sallyport_inbox.rules ORDER BY 1', 'sallyport')
    return rows.flatMap(({ runtime, rules }) => (JSON.parse(rules as string).rules.length > 0 ? [runtime] : []))
  }

  test.each([
    ['rules are not written once an instance without any is active', 'a secret', undefined, []],
    ['that there are none deletes no rules of the instance that is active again', undefined, 'a secret', ['demo']],
  ])('what a server could not write: %s', async (_, unwritten, active, stored) => {
    const { near, far, take, giveBack } = await startApart()
    const first = active === undefined ? undefined : await join(near, 'active', active)
    await until(async () => isDeepStrictEqual(await storedRules(), stored))
    await take()
    const late = await join(far, 'late', unwritten)
    const client = first ?? (await join(near, 'active', active))
    await leave(far, late)
    await dial(far, { runtime: 'other', hello: { inbox: [RULE] } })
    await giveBack()
    // What a server could not write is written in order.
    await until(async () => (await storedRules()).includes('other'))
    expect(await storedRules()).toEqual([...stored, 'other'])
    await leave(near, client)
    for (const server of [near, far])
      await until(async () => (await post(server, 'a secret')) === (active === undefined ? 503 : 202))
  })

  test('what a server could not write: nothing of an instance that has announced other rules elsewhere since', async () => {
    const { near, far, take, giveBack } = await startApart()
    await take()
    const late = await join(far, 'one', 'a secret')
    await join(near, 'one')
    await leave(far, late)
    await dial(far, { runtime: 'other', hello: { inbox: [RULE] } })
    await giveBack()
    await until(async () => (await storedRules()).includes('other'))
    expect(await storedRules()).toEqual(['other'])
  })

  test('refused rules hold no longer once an instance without any is active', { tags: ['slow'] }, async () => {
    const { near, far } = await start()
    await postgres.query('ALTER TABLE sallyport_inbox.rules ADD CONSTRAINT none CHECK (false)', 'sallyport')
    const refused = await join(far, 'refused', 'a secret')
    const client = await join(near, 'active')
    await leave(far, refused)
    await postgres.query('ALTER TABLE sallyport_inbox.rules DROP CONSTRAINT none', 'sallyport')
    await until(async () => (await post(far, 'another')) === 200)
    await leave(near, client)
    for (const server of [near, far]) await until(async () => (await post(server, 'a secret')) === 503)
    expect(await storedRules()).toEqual([])
  })

  test('rules of the active instance that others have replaced hold again', { tags: ['slow'] }, async () => {
    const { near } = await start()
    for (const secret of ['older secret', 'secret']) await join(near, 'active', secret)
    await dial(near, { runtime: 'without' })
    await until(async () => (await storedRules()).length > 0)
    await postgres.query(
      `UPDATE sallyport_inbox.rules SET rules = '${JSON.stringify({ rules: [RULE] })}';
       INSERT INTO sallyport_inbox.rules SELECT 'without', rules, seen FROM sallyport_inbox.rules;
       SELECT pg_notify('sallyport_inbox', 'another rules')`,
      'sallyport',
    )
    await until(async () => (await post(near, 'another')) !== 401)
    await until(async () => (await post(near, 'another')) === 401)
    expect(await post(near, 'secret')).not.toBe(401)
    await until(async () => !(await storedRules()).includes('without'))
  })
})
