// @module-tag slow
/** What operators do by hand on one of several servers. */
import { afterEach, expect, test } from 'vitest'
import { serverLifecycle } from '../../../cli/service/server-lifecycle.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Server } from '../../../server/server.ts'
import { startServer } from '../../server/fixture.ts'
import { needs } from '../../support/needs.ts'
import { Redis } from '../../support/redis.ts'
import { until } from '../../support/until.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

test.runIf(needs('redis')).each([{}, { replica: 'edge' }])(
  'a drain (%o) is for the server that is asked, even if others have its name',
  async body => {
    const redis = await Redis.start()
    open.push(() => redis.stop())
    await redis.age()
    const start = async () => {
      const server: Server = await startServer({ replica: 'edge', directory: { url: redis.url } })
      open.push(() => server.close({ graceMs: 0 }))
      return {
        server,
        drain: serverLifecycle(server, noLogger).actions!['/drain'] as (body: object) => Promise<object>,
      }
    }
    const [asked, other] = [await start(), await start()]
    const ready = () => [asked.server.ready(), other.server.ready()]
    await until(() => ready().every(Boolean))
    expect(await asked.drain(body)).toEqual({ replicas: [{ replica: 'edge', sessions: [] }] })
    expect(ready()).toEqual([false, true])
  },
)
