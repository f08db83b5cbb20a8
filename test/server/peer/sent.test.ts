/** What counts as sent to another replica: exchanges, not queries about who would accept one. */
import { expect, test } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import type { Hop } from '../../../server/peer/hop.ts'
import { ModelReplica, RUNTIME } from '../../replicas/model.ts'
import { needs } from '../../support/needs.ts'
import { Redis } from '../../support/redis.ts'
import { until } from '../../support/until.ts'
import { makeWorld } from '../fixture.ts'

test.runIf(needs('redis'))('a hop counts as sent once its stream is opened', async () => {
  const redis = await Redis.start()
  await redis.age()
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  const start = (name: string) => ModelReplica.start(name, redis.port, tls, 1000, [])
  const [near, far] = [await start('near'), await start('far')]
  far.join({ id: 'one', epoch: 0 })
  let hop: Hop | undefined
  await until(() => {
    near.route()
    hop = near.registry.pick(RUNTIME) as Hop | undefined
    return hop !== undefined
  })
  expect(near.peers.stats().sent).toBe(0)
  hop!.open()
  expect(near.peers.stats().sent).toBe(1)
  await Promise.all([near.stop(), far.stop()])
  await redis.stop()
})
