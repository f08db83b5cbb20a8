import { afterEach, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { call, DOMAIN, dial, startServer } from './fixture.ts'

let server: Server | undefined
afterEach(async () => {
  await server?.close({ graceMs: 0 })
  server = undefined
})

describe('a request through a session', () => {
  test('reaches the client, and its answer the caller', async () => {
    server = await startServer()
    await dial(server)
    const answer = await call(server, `demo.${DOMAIN}`, '/hello?x=1')
    expect(answer.status).toBe(200)
    expect(answer.text).toBe('GET /hello?x=1 ')
  })

  test('a body passes along', async () => {
    server = await startServer()
    await dial(server)
    const answer = await call(server, `demo.${DOMAIN}:8080`, '/in', { method: 'POST', body: 'x'.repeat(200_000) })
    expect(answer.text).toBe(`POST /in ${'x'.repeat(200_000)}`)
  })
})
