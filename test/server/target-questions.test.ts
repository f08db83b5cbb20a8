/** Clients are asked which targets accept connections: what a hostile, an old or a silent one does with that. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { CheckedRoute } from '../../protocol/wire/control.ts'
import type { Server } from '../../server/server.ts'
import { dial, startServer, type TestClient } from './fixture.ts'

let server: Server
/** Each question may take as long as its test wants. */
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => {
  vi.useRealTimers()
  return server?.close({ graceMs: 0 })
})

const WELL: CheckedRoute = { route: 'api', ms: 3 }

async function client(instance: string, features = ['checks']): Promise<TestClient> {
  server ??= await startServer()
  return await dial(server, { hello: { instance, features } })
}

/** Asks, and returns the outcome once the client has been asked. */
async function ask(one: TestClient) {
  const answers = server.checkTargets('demo')
  const { id } = await one.message('check')
  return { id, answers }
}

const tell = (one: TestClient, id: number, targets: readonly object[] = [WELL], more = 0) =>
  one.session.control({ type: 'checked', id, targets, more })

test('each instance of the runtime answers for itself, and other runtimes are not asked', async () => {
  server = await startServer()
  const [one, two] = [await client('one'), await client('two')]
  const other = await dial(server, { runtime: 'other', hello: { instance: 'other', features: ['checks'] } })
  const answers = server.checkTargets('demo')
  tell(one, (await one.message('check')).id)
  tell(two, (await two.message('check')).id, [{ ...WELL, code: 'upstream-refused' }], 7)
  expect(await answers).toMatchObject([
    { instance: 'one', targets: [WELL], more: 0 },
    { instance: 'two', targets: [{ ...WELL, code: 'upstream-refused' }], more: 7 },
  ])
  expect(other.messages.some(({ type }) => type === 'check')).toBe(false)
  expect(await server.checkTargets('nobody')).toEqual([])
})

test('one that did not offer it is not asked', async () => {
  server = await startServer()
  const one = await client('one', [])
  expect(await server.checkTargets('demo')).toMatchObject([{ instance: 'one', problem: 'unsupported' }])
  // An unsolicited answer goes to nobody.
  tell(one, 0)
  one.session.control({ type: 'reauth', token: 'none' })
  await one.message('reauth-refused')
  expect(one.messages.some(({ type }) => type === 'check')).toBe(false)
})

test('one that never answers, or answers another question, is not waited for long', async () => {
  server = await startServer()
  const one = await client('one')
  const { id, answers } = await ask(one)
  tell(one, id + 1)
  // The server has read that, and does not ask again yet.
  await new Promise(resolve => one.session.ping(resolve))
  vi.advanceTimersByTime(2500)
  expect(await answers).toMatchObject([{ instance: 'one', problem: 'no-answer' }])
  // A late answer does not count for the next question.
  const next = await ask(one)
  tell(one, id)
  tell(one, next.id, [{ route: 'second', ms: 1 }])
  tell(one, next.id, [{ route: 'third', ms: 1 }])
  expect(await next.answers).toMatchObject([{ targets: [{ route: 'second', ms: 1 }] }])
})

test('everybody who asks meanwhile gets the same answer, from one question', async () => {
  server = await startServer()
  const one = await client('one')
  const { id, answers } = await ask(one)
  const again = server.checkTargets('demo')
  tell(one, id)
  expect(await answers).toEqual(await again)
  expect(one.messages.filter(({ type }) => type === 'check')).toHaveLength(1)
})

test.each([
  ['more targets than there may be', Array.from({ length: 21 }, () => WELL)],
  ['a name that is none', [{ route: 'a b\u001b[31m', ms: 1 }]],
  ['a code that is none', [{ ...WELL, code: 'x'.repeat(65) }]],
])('%s: the session ends, and the question with it', async (_, targets) => {
  server = await startServer()
  const one = await client('one')
  const { id, answers } = await ask(one)
  tell(one, id, targets)
  expect((await one.closed).reason).toBe('protocol error')
  expect(await answers).toMatchObject([{ problem: 'no-answer' }])
})

test('an answer longer than a control message ends the session', async () => {
  server = await startServer()
  const one = await client('one')
  const { id, answers } = await ask(one)
  one.ws.send(JSON.stringify({ type: 'checked', id, targets: [], more: 0, filling: 'x'.repeat(20_000) }))
  await one.closed
  expect(await answers).toMatchObject([{ problem: 'no-answer' }])
})
