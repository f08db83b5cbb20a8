/**
 * Sealed webhooks, from the edge to a real client: what the file contains, who can open it, and what must not be
 * opened.
 */

import { createPrivateKey } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, expect, test } from 'vitest'
import { connect } from '../../../client/index.ts'
import { readInboxKeys } from '../../../client/options.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import type { ExchangeRecord } from '../../../protocol/exchange.ts'
import { newPrivateKey } from '../../../protocol/sealing/hpke.ts'
import { FEATURE } from '../../../protocol/wire/control.ts'
import { until } from '../../support/until.ts'
import { answer, CONTROL_NAME, dial, leave, makeWorld, token } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

let ground: Ground
const open: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
  await ground.close()
})

const makeKey = () => newPrivateKey().export({ format: 'pem', type: 'pkcs8' }) as string

/** A client whose target is the test's receiver, or `handler`. */
async function joined(inboxKeys: string[] | undefined, handler = ground.receiver.handler) {
  const { authority } = await makeWorld()
  const { host, port } = ground.server.controlAddress!
  const tunnel = await connect({
    url: `wss://${CONTROL_NAME}:${port}`,
    lookup: (_name, _options, done) => done(null, [{ address: host, family: 4 }]),
    token: await token('demo'),
    ca: authority.certificate,
    caOnly: true,
    connections: 1,
    inboxKeys,
    target: {
      handler: (request, response) => handler(undefined as never, request, response) as never,
      inbox: () => [RULE],
    },
  })
  const close = () => tunnel.close({ graceMs: 0 })
  open.push(close)
  return async () => {
    await close()
    await until(() => ground.server.sessions().length === 0)
  }
}

const SECRET_PATH = '/webhooks/secret-name?token=hunter2'
const HEADERS = {
  'x-github-delivery': 'delivery-of-today',
  authorization: 'Bearer swordfish',
  'content-type': 'text/plain',
}

test('I1: only the owner of the key can read what is stored, and it arrives unchanged', async () => {
  ground = await makeGround({ plaintext: false })
  const key = makeKey()
  const leave = await joined([key])
  await leave()
  const body = Buffer.alloc(1_500_000, 'a very secret body ')
  const said = await ground.post(body, { path: SECRET_PATH, headers: HEADERS })
  expect(said.status).toBe(202)
  expect((await ground.post('', { path: SECRET_PATH, headers: HEADERS })).status).toBe(202)
  const stored = readdirSync(ground.folder).map(name => readFileSync(join(ground.folder, name)))
  for (const secret of ['secret-name', 'hunter2', 'swordfish', 'very secret', 'delivery-of-today']) {
    expect(stored.some(file => file.includes(secret))).toBe(false)
  }
  await joined([makeKey(), key])
  await until(() => ground.receiver.got.length === 2)
  const [first, second] = ground.receiver.got
  expect(first!.body.equals(body)).toBe(true)
  expect(second!.body).toHaveLength(0)
  expect(first!.request).toMatchObject({ method: 'POST', path: SECRET_PATH, requestId: said.headers['x-request-id'] })
  expect(first).toMatchObject({ id: JSON.parse(said.text).id, attempt: 1 })
  const names = first!.request.headers.filter((_, i) => i % 2 === 0)
  expect(names.filter(name => name.startsWith('sallyport-')).sort()).toEqual([
    'sallyport-inbox-attempt',
    'sallyport-inbox-id',
    'sallyport-inbox-received',
  ])
  expect(first!.request.headers).toEqual(expect.arrayContaining(['authorization', 'Bearer swordfish']))
  await until(async () => (await ground.messages('delivered')).length === 2)
})

test('a receiver that answers before it reads gets what fits into one part', async () => {
  ground = await makeGround({ plaintext: false })
  const key = makeKey()
  await (await joined([key]))()
  for (let i = 0; i < 10; i++) expect((await ground.post(Buffer.alloc(20_000))).status).toBe(202)
  const asked: { bytes: number; ended: boolean }[] = []
  await joined([key], (_preamble, _request, response) => {
    const one = { bytes: 0, ended: false }
    asked.push(one)
    answer(response, 200, 'before it was read')
    return {
      ...discarding(response),
      requestData: chunk => (one.bytes += chunk.length),
      requestEnd: () => (one.ended = true),
    }
  })
  await until(async () => (await ground.messages('delivered')).length === 10)
  await until(() => asked.every(({ ended }) => ended))
  expect(asked).toEqual(Array(10).fill({ bytes: 20_000, ended: true }))
})

test('another key: the webhook waits, says why, and arrives once the key is there', async () => {
  const records: ExchangeRecord[] = []
  ground = await makeGround({ plaintext: false }, { onExchange: one => void records.push(one) })
  const key = makeKey()
  await (await joined([key]))()
  expect((await ground.post('sealed')).status).toBe(202)
  const leave = await joined([makeKey()])
  await until(async () => (await ground.messages('waiting'))[0]?.reason === 'inbox-sealed')
  expect(ground.receiver.got).toEqual([])
  const [{ id } = { id: '' }] = await ground.messages('waiting')
  await until(() => records.length > 1)
  expect(records[1]).toMatchObject({
    route: RULE.route,
    inboxId: id,
    code: 'inbox-sealed',
    session: expect.any(String),
  })
  await leave()
  await joined([key])
  await until(() => ground.receiver.got.length === 1)
  expect(ground.receiver.bodies).toEqual(['sealed'])
})

test('I2: what was changed in the file is never delivered', async () => {
  ground = await makeGround({ plaintext: false })
  const key = makeKey()
  await (await joined([key]))()
  expect((await ground.post('sealed')).status).toBe(202)
  await ground.server.close({ graceMs: 0 })
  const file = new DatabaseSync(ground.path)
  file.exec('UPDATE parts SET bytes = zeroblob(length(bytes)) WHERE n = 1')
  file.close()
  await ground.restart()
  await joined([key])
  await until(async () => (await ground.messages('waiting'))[0]?.reason === 'inbox-sealed')
  expect(ground.receiver.got).toEqual([])
})

/** What opens each webhook in the file. */
function encs(): string[] {
  const file = new DatabaseSync(ground.path)
  const rows = file.prepare('SELECT enc FROM messages ORDER BY seq').all()
  file.close()
  return rows.map(({ enc }) => String(enc))
}

test('webhooks sealed for an older client, before a restart and before a rotation arrive with the rest', async () => {
  ground = await makeGround({ plaintext: false })
  ground.receiver.says = () => 503
  const key = makeKey()
  const { announced: inboxKey } = readInboxKeys([key])!
  // An older client sends no features.
  await leave(ground.server, await dial(ground.server, { hello: { inbox: [RULE], inboxKey } }))
  expect((await ground.post('first form')).status).toBe(202)
  await (await joined([key]))()
  for (const body of ['one', 'two', 'three']) expect((await ground.post(body)).status).toBe(202)
  await ground.restart()
  expect((await ground.post('after a restart')).status).toBe(202)
  const next = makeKey()
  await (await joined([next, key]))()
  expect((await ground.post('after a rotation')).status).toBe(202)
  await ground.server.close({ graceMs: 0 })
  const [first, ...others] = encs()
  expect(first).toMatch(/^[\w-]{43}$/)
  expect(others.every(enc => /^[\w-]{43}\.\d+$/.test(enc))).toBe(true)
  expect(new Set(others).size).toBe(5)
  ground.receiver.says = () => 200
  ground.receiver.got.length = 0
  await ground.restart()
  await joined([next, key])
  await until(() => ground.receiver.got.length === 6)
  const all = ['first form', 'one', 'two', 'three', 'after a restart', 'after a rotation']
  expect(ground.receiver.bodies).toEqual(all)
})

test('a server with an inbox announces the form in which it seals', async () => {
  ground = await makeGround()
  const { messages } = await dial(ground.server, { hello: { features: [FEATURE.sharedSeals] } })
  expect(messages.find(({ type }) => type === 'welcome')).toMatchObject({
    features: ['shared-seals'],
  })
})

test('I1: a client without a key: nothing is kept, unless it may be kept in clear', async () => {
  ground = await makeGround({ plaintext: false })
  await (await joined(undefined))()
  expect((await ground.post('x')).status).toBe(503)
  await ground.close()
  ground = await makeGround({ plaintext: true })
  await (await joined(undefined))()
  expect((await ground.post('x')).status).toBe(202)
})

test('invalid keys are refused', async () => {
  ground = await makeGround()
  await expect(joined(['nonsense'])).rejects.toThrow()
  expect(createPrivateKey(makeKey()).asymmetricKeyType).toBe('x25519')
})
