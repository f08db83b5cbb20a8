/** Questions from one replica to all others, through a real Redis. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../../server/server.ts'
import { needs } from '../../support/needs.ts'
import { Redis } from '../../support/redis.ts'
import { Relay } from '../../support/relay.ts'
import { eventually, until } from '../../support/until.ts'
import { startServer } from '../fixture.ts'

const LOGIN = { user: 'replica', password: 'secret' }

describe.runIf(needs('redis'))("operators' questions", () => {
  let redis: Redis
  const servers: Server[] = []
  beforeAll(async () => {
    redis = await Redis.start({ user: { name: LOGIN.user, password: LOGIN.password } })
  })
  afterAll(() => redis.stop())
  afterEach(() => Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 }))))

  async function start(replica: string, url = redis.url, user: { user?: string; password?: string } = LOGIN) {
    const server = await startServer({ replica, directory: { url, ...user } })
    server.answerOthers(async (what, body, by) => {
      if (what === '/fail') throw new Error('no')
      if (what === '/much') return 'x'.repeat(5 * 1024 * 1024)
      return what === '/who' ? { replica, body, asked: by.split('~')[0] } : undefined
    })
    servers.push(server)
    return server
  }

  test('are answered by all others, and by nobody if there are none', async () => {
    const a = await start('a')
    expect(await a.askOthers('/who')).toEqual([])
    await start('b')
    await start('c')
    const answers = await a.askOthers('/who', { x: 1 })
    expect(answers).toHaveLength(2)
    expect(answers).toContainEqual({ replica: 'b', body: { x: 1 }, asked: 'a' })
    expect(answers).toContainEqual({ replica: 'c', body: { x: 1 }, asked: 'a' })
  })

  test('end after a while if nobody can answer, and are not asked without Redis', async () => {
    const a = await start('a')
    await start('b')
    const silence = [{ problem: '1 of 1 other replicas did not answer' }]
    expect(await a.askOthers('/nothing')).toEqual(silence)
    await redis.kill()
    const problem = () => a.askOthers('/who').catch((error: Error) => error.message)
    await until(async () => (await problem()) === 'the other replicas cannot be asked: no Redis')
    await redis.start()
  })

  test('do not count as answered by a replica that has lost Redis, and may still serve', async () => {
    const relay = await Relay.start({ port: redis.port })
    const a = await start('a')
    await start('b', `redis://127.0.0.1:${relay.port}`)
    await until(() => a.stats().directory.replicas === 2)
    const answer = expect.objectContaining({ replica: 'b' })
    await until(async () => (await a.askOthers('/who')).length === 1)
    relay.target = 0
    relay.cut()
    const silence = [{ problem: '1 of 1 other replicas did not answer' }]
    await eventually(async () => expect(await a.askOthers('/who')).toEqual(silence))
    relay.target = redis.port
    await eventually(async () => expect(await a.askOthers('/who')).toEqual([answer]))
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    await relay.stop()
  })

  test('reach a replica whose Redis has become a standby', async () => {
    const [was, next] = [await Redis.start(), await Redis.start()]
    await start('b', `${was.url},127.0.0.1:${next.port}`, {})
    const a = await start('a', next.url, {})
    await was.command('REPLICAOF', '127.0.0.1', '1')
    await eventually(async () => expect(await a.askOthers('/who')).toMatchObject([{ replica: 'b' }]))
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    for (const each of [was, next]) await each.stop()
  })

  test('do not count as answered if a replica fails or its answer does not fit', async () => {
    const a = await start('a')
    await start('b')
    const problem = (text: string) => [{ problem: expect.stringContaining(text) }]
    expect(await a.askOthers('/fail')).toEqual(problem('could not answer: no'))
    expect(await a.askOthers('/much')).toEqual(problem('could not answer: the message has 52'))
  })

  test('are bounded: one more is refused at once', async () => {
    const a = await start('a')
    await start('b')
    const asked = Array.from({ length: 65 }, () => a.askOthers('/nothing').catch((error: Error) => error.message))
    expect(await asked[64]).toBe('too many questions are open')
    const silence = [{ problem: '1 of 1 other replicas did not answer' }]
    expect(await Promise.all(asked.slice(0, 64))).toEqual(Array(64).fill(silence))
  })

  test('a server without a directory has no others', async () => {
    const server = await startServer()
    servers.push(server)
    expect(await server.askOthers('/who')).toEqual([])
  })
})
