// @module-tag slow
/**
 * What must not stop the inbox: a damaged store, a clock that is set back, ends that never answer, and tenants that
 * fill it.
 */

import { createHmac, randomBytes } from 'node:crypto'
import { closeSync, openSync, statSync, writeSync } from 'node:fs'
import { request } from 'node:http'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout } from 'node:timers/promises'
import { afterEach, describe, expect, onTestFinished, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { BODY_UNKNOWN, type RequestSink, type ResponseSink } from '../../../protocol/exchange.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { Relay } from '../../support/relay.ts'
import { eventually, until } from '../../support/until.ts'
import { answer, DOMAIN, dial, leave, reading, token } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
afterEach(() => ground.close())

/** A server that knows the rules of a runtime, whose client has left. */
async function startOffline(...options: Parameters<typeof makeGround>): Promise<void> {
  ground = await makeGround(...options)
  await leave(ground.server, await ground.connect())
}

/** Stored while the runtime is offline. */
async function store(...bodies: (string | Buffer)[]): Promise<void> {
  await leave(ground.server, await ground.connect())
  for (const body of bodies) expect((await ground.post(body)).status).toBe(202)
}

/** Changes the file behind the server's back. */
async function edit(sql: string): Promise<void> {
  await ground.server.close({ graceMs: 0 })
  const file = new DatabaseSync(ground.path)
  file.exec(sql)
  file.close()
  await ground.restart()
}

const FIRST = '(SELECT id FROM messages ORDER BY seq LIMIT 1)'

test.each([
  ['its head is gone', `DELETE FROM parts WHERE n = 0 AND id = ${FIRST}`],
  ['its body is gone', `DELETE FROM parts WHERE n = 1 AND id = ${FIRST}`],
  ['its head is no JSON', `UPDATE parts SET bytes = x'01' WHERE n = 0 AND id = ${FIRST}`],
  [
    'its caller is no JSON, and it is sealed',
    `UPDATE messages SET caller = 'x', key = 'k', parts = 2 WHERE id = ${FIRST}`,
  ],
])('an unreadable webhook is a dead letter, and the lane goes on: %s', async (_, sql) => {
  ground = await makeGround()
  await store('first', 'second')
  await edit(sql)
  await ground.connect()
  await until(() => ground.receiver.bodies.includes('second'))
  expect(await ground.messages('dead')).toMatchObject([{ reason: 'damaged' }])
  await until(() => ground.server.stats().inbox!.messages.waiting === 0)
  expect(ground.server.stats().inbox).toMatchObject({ dead: { damaged: 1 }, messages: { dead: 1 } })
})

test.each<[string, () => unknown]>([
  ['no number for a while', () => undefined],
  ['fractions', () => performance.timeOrigin + performance.now()],
])('a clock that returns %s: webhooks are stored and delivered', async (_what, odd) => {
  let clock = (): unknown => Date.now()
  await startOffline({}, { clock: () => clock() as number })
  clock = odd
  expect((await ground.post('a')).status).toBe(202)
  clock = Date.now
  await ground.connect()
  await until(() => ground.server.stats().inbox!.messages.delivered === 1)
  expect(ground.receiver.bodies).toEqual(['a'])
})

test.each([0, 1, 2])('a webhook that lacks part %i is not shown as whole', async part => {
  ground = await makeGround()
  await store(Buffer.alloc(600_000, 'a'))
  const [message] = await ground.messages()
  const read = async () => (await ground.server.inbox!.read(message!.id))?.body.length
  expect(await read()).toBe(600_000)
  await edit(`DELETE FROM parts WHERE n = ${part}`)
  expect(await read()).toBeUndefined()
})

test('unreadable rules stop nothing, and are announced again', async () => {
  ground = await makeGround()
  await store('first')
  await edit("UPDATE rules SET rules = 'x'")
  const client = await ground.connect()
  await until(() => ground.receiver.bodies.includes('first'))
  await leave(ground.server, client)
  expect((await ground.post('second')).status).toBe(202)
})

test('a file that is set aside while in use takes no rule and no pause with it', async () => {
  ground = await makeGround()
  await store(...Array.from({ length: 20 }, (_, i) => Buffer.alloc(100_000, i)))
  await ground.restart()
  await ground.connect()
  await ground.server.inbox!.pause('demo', true)
  await until(async () => (await ground.messages()).length === 20)
  const { size } = statSync(ground.path)
  const file = openSync(ground.path, 'r+')
  writeSync(file, Buffer.alloc(size - 8192, 0x5a), 0, size - 8192, 8192)
  closeSync(file)
  const all = await ground.messages()
  await until(async () => {
    for (const { id } of all) await ground.server.inbox!.read(id).catch(() => {})
    return ground.server.stats().inbox!.store.setAside !== undefined
  })
  expect((await ground.post('after')).status).toBe(202)
  await ground.restart()
  expect(ground.server.stats().inbox!.paused).toEqual(['demo'])
  expect((await ground.post('and later')).status).toBe(202)
})

/** Another program has the file while the server starts. */
async function lockOut(): Promise<() => void> {
  await ground.server.close({ graceMs: 0 })
  const other = new DatabaseSync(ground.path)
  other.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE')
  await ground.restart()
  return () => other.close()
}

async function breakStore(): Promise<() => void> {
  await ground.server.inbox!.list({ limit: 0.5 }).catch(() => {})
  return () => {}
}

test.each([
  ['is away', breakStore],
  ['has not been open yet', lockOut],
])('an inbox that is withdrawn while the store %s is gone, and stays gone', async (_, close) => {
  await startOffline()
  const store = () => ground.server.stats().inbox!.store
  await until(() => store().commits > 0)
  const open = await close()
  const { commits } = store()
  const client = await ground.connect([])
  open()
  await until(() => store().open)
  ground.receiver.says = () => 500
  expect((await ground.post('a')).status).toBe(500)
  await until(() => store().commits > commits)
  await leave(ground.server, client)
  await ground.restart()
  expect((await ground.post('b')).status).toBe(503)
  expect(await ground.messages()).toEqual([])
})

/** A webhook of which this many bytes are sent, and its answer. */
function upload(bytes: number, length: number, more: Record<string, string> = {}) {
  const { host, port } = ground.server.publicAddress!
  const headers = { host: `demo.${DOMAIN}`, 'content-length': String(length), ...more }
  const sender = request({ host, port, method: 'POST', path: '/webhooks/a', headers })
  const status = new Promise<number>((resolve, reject) => {
    sender.once('response', response => {
      response.resume()
      resolve(response.statusCode!)
    })
    sender.once('error', reject)
  })
  sender.write(Buffer.alloc(bytes, 'x'))
  return { sender, status }
}

/** They leave, answered or not. */
async function hangUp(uploads: readonly ReturnType<typeof upload>[]): Promise<void> {
  for (const { sender, status } of uploads) {
    status.catch(() => {})
    sender.on('error', () => {}).destroy()
  }
  await until(() => ground.server.stats().inbox!.bufferBytes === 0)
}

test('a store that reopens during a body has lost its beginning: 503, never 202', async () => {
  await startOffline()
  const { commits } = ground.server.stats().inbox!.store
  // Its first part is stored, and the rest is too short for another one.
  const { sender, status } = upload(700_000, 1_400_000)
  const inbox = () => ground.server.stats().inbox!
  await until(() => inbox().store.commits > commits && inbox().bufferBytes < 500_000)
  await ground.server.inbox!.list({ limit: 0.5 }).catch(() => {})
  expect(inbox().store).toMatchObject({ open: false })
  await until(() => inbox().store.open)
  sender.end(Buffer.alloc(700_000, 'y'))
  expect(await status).toBe(503)
  expect(await ground.messages()).toEqual([])
})

describe.runIf(needs('postgres'))('in PostgreSQL', () => {
  test('a body that was arriving while PostgreSQL went offline leaves nothing behind', async () => {
    const postgres = await Postgres.start()
    try {
      ground = await makeGround({ url: postgres.url })
      await leave(ground.server, await ground.connect())
      const parts = async () => await postgres.query('SELECT id FROM sallyport_inbox.parts', 'sallyport')
      const { sender, status } = upload(700_000, 1_400_000)
      await until(async () => (await parts()).length === 1)
      await postgres.kill()
      await until(() => !ground.server.stats().inbox!.store.open)
      sender.end(Buffer.alloc(700_000, 'y'))
      expect(await status).toBe(503)
      await postgres.start()
      await until(async () => (await parts()).length === 0)
    } finally {
      await postgres.stop()
    }
  })

  // The standby had not heard of the last change, or somebody restored a backup.
  test.each([
    ['no rules', 'DELETE FROM sallyport_inbox.rules'],
    ['earlier rules', `UPDATE sallyport_inbox.rules SET rules = replace(rules, '/webhooks/', '/earlier/'), seen = 1`],
  ])('a PostgreSQL that has %s of a connected client gets the current ones', async (_, earlier) => {
    const postgres = await Postgres.start()
    try {
      const relay = await Relay.start({ port: postgres.port })
      onTestFinished(() => relay.stop())
      ground = await makeGround({ url: `postgres://sallyport@127.0.0.1:${relay.port}/sallyport` })
      const client = await ground.connect()
      const isOpen = () => ground.server.stats().inbox!.store.open
      const paths = async () => {
        const rows = await postgres.query('SELECT rules FROM sallyport_inbox.rules', 'sallyport')
        return rows.map(({ rules }) => JSON.parse(rules as string).rules[0].path)
      }
      await until(async () => (await paths()).length === 1)
      relay.target = 0
      relay.cut()
      await until(() => !isOpen())
      await postgres.query(earlier, 'sallyport')
      expect(await paths()).not.toEqual([RULE.path])
      relay.target = postgres.port
      await until(isOpen)
      await leave(ground.server, client)
      expect((await ground.post('kept')).status).toBe(202)
      await eventually(async () => expect(await paths()).toEqual([RULE.path]))
    } finally {
      await postgres.stop()
    }
  })
})

test.each([
  ['the runtime', { bytesPerRuntime: 1024 * 1024 }],
  ['all', { bytes: 1024 * 1024 }],
])('the quota of %s counts a body as it arrives, and has room again when it is gone', async (_, quota) => {
  await startOffline({ ...quota, unverifiedPerMinute: 0 })
  const { sender, status } = upload(1_800_000, 50_000_000)
  expect(await status).toBe(503)
  sender.on('error', () => {}).destroy()
  await until(async () => (await ground.post(Buffer.alloc(900_000))).status === 202)
})

test("a stranger's long webhooks leave half of the quota to others", async () => {
  await startOffline({ bytesPerRuntime: 8 * 1024 * 1024, messagesPerRuntime: 1000 })
  const long = Buffer.alloc(3 * 1024 * 1024)
  expect((await ground.post(long)).status).toBe(202)
  expect(await ground.post(long)).toMatchObject({ status: 503, headers: { 'sallyport-error': 'inbox-full' } })
  expect((await ground.post('short')).status).toBe(202)
})

describe('while the signature of a webhook is not known to be valid', () => {
  const SECRET = Buffer.from('secret')
  const sign = (body: Buffer) => ({
    'x-hub-signature-256': `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`,
  })

  test('its parts leave half of the quota to others', async () => {
    ground = await makeGround({ bytesPerRuntime: 4 * 1024 * 1024 })
    const verify = { scheme: 'github' as const, secrets: [SECRET.toString('base64')] }
    await leave(ground.server, await ground.connect([{ ...RULE, verify }]))
    const forged = Array.from({ length: 7 }, () => upload(530_000, 600_000, sign(Buffer.from('another one'))))
    expect(await Promise.race(forged.map(({ status }) => status))).toBe(503)
    for (let i = 0; i < 4; i++) {
      const signed = Buffer.alloc(400_000, i)
      expect((await ground.post(signed, { headers: sign(signed) })).status).toBe(202)
    }
    await hangUp(forged)
  })

  test('what is kept for an Ed25519 signature counts, and no more once it is refused', async () => {
    ground = await makeGround()
    const secret = Buffer.from(`whpk_${randomBytes(32).toString('base64')}`).toString('base64')
    const verify = { scheme: 'standard-webhooks' as const, secrets: [secret] }
    await leave(ground.server, await ground.connect([{ ...RULE, timestamps: true, verify }]))
    const inbox = () => ground.server.stats().inbox!
    // Changes are written in order.
    await ground.server.inbox!.pause('demo', false)
    const { commits } = inbox().store
    const { sender, status } = upload(530_000, 600_000, {
      'webhook-id': 'id',
      'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
      'webhook-signature': `v1a,${randomBytes(64).toString('base64')}`,
    })
    // Its first part is stored by then, and still in memory for the signature.
    await until(() => inbox().store.commits > commits && inbox().bufferBytes >= 530_000)
    sender.end(Buffer.alloc(70_000))
    expect(await status).toBe(401)
    expect(inbox().bufferBytes).toBe(0)
  })
})

/** A receiver that answers 200 by itself, whatever has arrived. */
async function earlyReceiver() {
  const asked: { bytes: number; ended: boolean; response: ResponseSink }[] = []
  await dial(ground.server, {
    hello: { inbox: [RULE] },
    handler: (_preamble, _request, response) => {
      const one = { bytes: 0, ended: false, response }
      asked.push(one)
      return {
        ...discarding(response),
        requestData: chunk => {
          one.bytes += chunk.length
          response.requestConsumed(chunk.length)
        },
        requestEnd: () => (one.ended = true),
      }
    },
  })
  return asked
}
const SAYS_200 = { status: 200, headers: [], bodyBytes: BODY_UNKNOWN }

/** Callers, by the address that a proxy names. */
const BEHIND_PROXY = { trustedProxies: ['127.0.0.0/8'] }
const from = (address: string) => ({ 'x-forwarded-for': address })

test("a stranger's short webhooks leave half of a lane to others", async () => {
  await startOffline({ messagesPerLane: 10, unverifiedPerMinute: 1 }, BEHIND_PROXY)
  const post = async (address: string) => (await ground.post('hook', { headers: from(address) })).status
  const stranger: number[] = []
  for (let i = 0; i < 10; i++) stranger.push(await post('192.0.2.1'))
  expect(stranger).toEqual([...Array(6).fill(202), ...Array(4).fill(503)])
  expect(await post('192.0.2.2')).toBe(202)
})

const REFUSALS = ['webhook-signature', 'caller-not-allowed', 'no-route', 'bad-request'] as const
test.each(REFUSALS)('%s: forgeries hold up no lane', async code => {
  await startOffline()
  for (const body of ['forged', 'forged', 'forged', 'good']) expect((await ground.post(body)).status).toBe(202)
  await dial(ground.server, {
    hello: { inbox: [RULE] },
    handler: (_preamble, _request, response) =>
      reading(response, body => {
        const { status } = new SallyportError(code)
        const isForged = String(body) === 'forged'
        response.responseHead({ status: isForged ? status : 200, headers: ['sallyport-error', code], bodyBytes: 0 })
        response.responseEnd([])
      }),
  })
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(await ground.messages('dead')).toMatchObject(Array(3).fill({ reason: `refused: ${code}` }))
})

test('webhooks that are still arriving take no room in a lane, and nobody queues behind them', async () => {
  ground = await makeGround({ messagesPerLane: 2 })
  const client = await ground.connect([{ ...RULE, answerWithinMs: 1500 }])
  const slow = [upload(10, 20)]
  await until(() => ground.server.stats().inbox!.bufferBytes === 10)
  // Set after the deadline for its answer, so it ends later, too.
  await setTimeout(1600)
  expect((await ground.post('passes')).status).toBe(200)
  await leave(ground.server, client)
  for (let i = 0; i < 4; i++) slow.push(upload(10, 20))
  await until(() => ground.server.stats().inbox!.bufferBytes === 50)
  expect((await ground.post('is kept')).status).toBe(202)
  slow[0]!.sender.end(Buffer.alloc(10))
  expect(await slow[0]!.status).toBe(202)
  await hangUp(slow)
})

test("one network cannot use up the memory for others' bodies", async () => {
  await startOffline({ bufferBytes: 1024 * 1024 }, BEHIND_PROXY)
  const slow = Array.from({ length: 8 }, () => upload(100_000, 200_000, from('192.0.2.1')))
  expect(await Promise.race(slow.map(({ status }) => status))).toBe(503)
  const bodies = [1, 2, 3].map(i => ground.post(Buffer.alloc(50_000), { headers: from(`198.51.100.${i}`) }))
  expect((await Promise.all(bodies)).map(({ status }) => status)).toEqual([202, 202, 202])
  await hangUp(slow)
})

test('a receiver that says 200 before it has a stored webhook gets all of it, and again if its answer breaks', async () => {
  ground = await makeGround()
  await store(Buffer.alloc(2_000_000))
  const asked = await earlyReceiver()
  await until(() => asked.length === 1)
  asked[0]!.response.responseHead(SAYS_200)
  await until(() => asked[0]!.ended)
  asked[0]!.response.responseAbort(new SallyportError('upstream-broken'))
  await until(() => asked.length === 2)
  asked[1]!.response.responseHead(SAYS_200)
  await until(() => asked[1]!.ended)
  asked[1]!.response.responseEnd([])
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(asked.map(({ bytes }) => bytes)).toEqual([2_000_000, 2_000_000])
})

test('a receiver that answers before it reads gets what fits into one part', async () => {
  ground = await makeGround()
  const bodies = Array.from({ length: 10 }, () => Buffer.alloc(20_000))
  await store(...bodies)
  const asked: { bytes: number; ended: boolean }[] = []
  await dial(ground.server, {
    handler: (_preamble, _request, response) => {
      const one = { bytes: 0, ended: false }
      asked.push(one)
      answer(response, 200, 'before it was read')
      return {
        ...discarding(response),
        requestData: chunk => (one.bytes += chunk.length),
        requestEnd: () => (one.ended = true),
      }
    },
  })
  await until(async () => (await ground.messages('delivered')).length === bodies.length)
  await until(() => asked.every(({ ended }) => ended))
  expect(asked).toEqual(bodies.map(() => ({ bytes: 20_000, ended: true })))
})

test('a receiver that stops reading keeps the sender of a long webhook waiting no longer than a silent one', async () => {
  ground = await makeGround()
  const asked: number[] = []
  await dial(ground.server, {
    hello: { inbox: [{ ...RULE, answerWithinMs: 20 }] },
    handler: (_preamble, _request, response) => {
      const nr = asked.push(0) - 1
      return {
        ...discarding(response),
        requestData: chunk => {
          asked[nr]! += chunk.length
          if (nr > 0) response.requestConsumed(chunk.length)
        },
        requestEnd: () => answer(response, 200, 'all of it'),
      }
    },
  })
  expect((await ground.post(Buffer.alloc(2_000_000))).status).toBe(202)
  await until(async () => (await ground.messages('delivered')).length === 1)
  expect(asked).toEqual([expect.any(Number), 2_000_000])
})

test.each([
  ['40 days', 40 * 86_400_000],
  ['20 minutes', 20 * 60_000],
])('a clock that was set back by %s stops no lane', async (_, ms) => {
  let ahead = 0
  await startOffline({}, { clock: () => Date.now() + ahead })
  ahead = ms
  expect((await ground.post('of the future')).status).toBe(202)
  ahead = 0
  await ground.restart()
  await ground.connect()
  await until(() => ground.receiver.bodies.includes('of the future'))
})

test('a webhook of the future can be replayed any number of times', async () => {
  let ahead = 0
  await startOffline({}, { clock: () => Date.now() + ahead })
  ahead = 40 * 86_400_000
  expect((await ground.post('of the future')).status).toBe(202)
  ahead = 0
  for (let i = 0; i < 3; i++) await ground.server.inbox!.replay({ limit: 1 })
  await ground.connect()
  await until(() => ground.receiver.bodies.includes('of the future'))
})

test("rules last thirty days from the client's last connection, however often the server restarts", async () => {
  let now = Date.now()
  ground = await makeGround({}, { clock: () => now })
  const connect = async () =>
    await dial(ground.server, { token: await token('demo', { now }), hello: { inbox: [RULE] } })
  await leave(ground.server, await connect())
  await until(() => ground.server.stats().inbox!.store.commits > 0)
  for (let i = 0; i < 3; i++) {
    now += 16 * 3_600_000
    await ground.restart()
  }
  await leave(ground.server, await connect())
  await until(() => ground.server.stats().inbox!.store.commits > 0)
  await ground.server.close({ graceMs: 0 })
  const file = new DatabaseSync(ground.path)
  expect(file.prepare('SELECT seen FROM rules').all()).toEqual([{ seen: now }])
  file.close()
  await ground.restart()
})

test('a key that nothing can be sealed for is refused: nothing is kept, and nothing is left behind', async () => {
  ground = await makeGround({ plaintext: false })
  const inboxKey = Buffer.alloc(32).toString('base64url')
  await dial(ground.server, {
    handler: ground.receiver.handler,
    hello: { inbox: [{ ...RULE, mode: 'always', lane: 'none' }], inboxKey },
  })
  expect((await ground.post('one')).status).toBe(200)
  expect(ground.server.stats().inbox).toMatchObject({ lanes: 0, refused: { 'inbox-away': 0 } })
})

test('a webhook that is listed as waiting and has since gone is not counted twice', async () => {
  ground = await makeGround()
  await store('first', 'second', 'third')
  const [, , { id }] = (await ground.messages()) as [unknown, unknown, { id: string }]
  const inbox = ground.server.inbox!
  const done = await Promise.all([1, 2, 3].map(() => inbox.drop({ id, limit: 1 })))
  expect(done.flat()).toEqual([id])
  expect(ground.server.stats().inbox!.messages).toMatchObject({ waiting: 2 })
  await ground.connect()
  await until(() => ground.receiver.got.length === 2)
  expect(ground.receiver.bodies).toEqual(['second', 'third'])
})

test.each(['drop', 'replay'] as const)(
  '%s by hand takes many together: a commit for each would take minutes',
  async what => {
    ground = await makeGround()
    const bodies = Array.from({ length: 300 }, (_, index) => String(index))
    await store(...bodies)
    const inbox = ground.server.inbox!
    const { commits } = ground.server.stats().inbox!.store as { commits: number }
    expect(await inbox[what]({ limit: 1000 })).toHaveLength(300)
    expect((ground.server.stats().inbox!.store as { commits: number }).commits - commits).toBeLessThan(30)
    expect(ground.server.stats().inbox!.messages.waiting).toBe(what === 'drop' ? 0 : 300)
  },
)

test('dropping a webhook during its attempt lets none behind it overtake it', async () => {
  ground = await makeGround()
  await store('first', 'second', 'third')
  ground.receiver.says = (_got, index) => (index === 0 ? undefined : 200)
  await ground.connect()
  await until(() => ground.receiver.got.length === 1)
  await ground.server.inbox!.drop({ limit: 1, id: ground.receiver.got[0]!.id! })
  expect((await ground.post('new')).status).toBe(202)
  answer(ground.receiver.got[0]!.response, 200, 'late')
  await until(() => ground.receiver.got.length === 4)
  expect(ground.receiver.bodies).toEqual(['first', 'second', 'third', 'new'])
})

test("one runtime cannot use up the memory for others' bodies", async () => {
  await startOffline({ bufferBytes: 1024 * 1024 })
  const evil = await dial(ground.server, { runtime: 'evil', hello: { inbox: [{ ...RULE, mode: 'always' }] } })
  const { host, port } = ground.server.publicAddress!
  const refused: number[] = []
  const slow = Array.from({ length: 4 }, () => {
    const headers = { host: `evil.${DOMAIN}`, 'content-length': '600000' }
    const one = request({ host, port, method: 'POST', path: '/webhooks/a', headers })
    one.on('error', () => {})
    one.on('response', response => refused.push(response.statusCode!))
    one.write(Buffer.alloc(300_000))
    return one
  })
  await until(() => refused.length > 0)
  expect(ground.server.stats().inbox!.bufferBytes).toBeLessThan(768 * 1024)
  expect((await ground.post(Buffer.alloc(200_000))).status).toBe(202)
  for (const one of slow) one.destroy()
  evil.ws.terminate()
  await until(() => ground.server.stats().inbox!.bufferBytes === 0)
})

test('an attempt that nobody waits for any more ends', async () => {
  ground = await makeGround({ attemptMs: 1000 })
  ground.receiver.says = () => undefined
  await ground.connect([{ ...RULE, answerWithinMs: 20 }])
  expect((await ground.post('slow')).status).toBe(202)
  await until(() => ground.server.stats().inbox!.attempts.failed === 1)
  await until(() => ground.server.sessions()[0]!.exchanges === 0)
})

test('an answer whose end never arrives ends with its deadline', async () => {
  ground = await makeGround()
  const aborted: unknown[] = []
  await dial(ground.server, {
    hello: { inbox: [RULE] },
    handler: (...exchange) => ({
      ...(ground.receiver.handler(...exchange) as RequestSink),
      requestAbort: error => aborted.push(error),
    }),
  })
  ground.receiver.says = ({ response }, index) => {
    if (index > 0) return 200
    response.responseHead({ status: 503, headers: [], bodyBytes: BODY_UNKNOWN })
    return undefined
  }
  expect((await ground.post('a')).status).toBe(202)
  await until(() => aborted.length === 1)
  expect(aborted).toMatchObject([{ reason: 'request-timeout' }])
  await until(() => ground.server.sessions()[0]!.exchanges === 0)
})

test('a webhook that was stored while the session was full is delivered once there is room', async () => {
  ground = await makeGround()
  const { handler } = ground.receiver
  ground.receiver.says = (_, index) => (index === 0 ? undefined : 200)
  await dial(ground.server, { handler, hello: { inbox: [RULE], limits: { streams: 1 } } })
  const first = ground.post('takes all of it', { path: '/other' })
  await until(() => ground.receiver.got.length === 1)
  expect((await ground.post('kept')).status).toBe(202)
  answer(ground.receiver.got[0]!.response, 200, 'done')
  expect((await first).status).toBe(200)
  await until(() => ground.receiver.bodies.includes('kept'))
})
