import { afterEach, expect, test } from 'vitest'
import { collectGarbage as collect } from '../../load-tests/lib/garbage.ts'
import type { Server } from '../../server/server.ts'
import { DOMAIN, dial, hanging, startServer } from './fixture.ts'

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

test('an abort of the embedder ends its fetch also when nobody holds the Request any more', async () => {
  server = await startServer()
  const { handler, begun } = hanging()
  const client = await dial(server, { handler })
  const aborter = new AbortController()
  const answered = server.fetch('demo', new Request(`http://demo.${DOMAIN}/`, { signal: aborter.signal }))
  const failed = expect(answered).rejects.toThrow('gone')
  await begun
  for (let i = 0; i < 3; i++) await collect()
  aborter.abort(new Error('gone'))
  await failed
  await expect.poll(() => client.session.streams, { timeout: 10_000 }).toBe(0)
})
