import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { hasBatch } from '../../load-tests/lib/batch.ts'
import { Generators, hasWrk } from '../../load-tests/lib/generator.ts'
import { Worker } from '../../load-tests/lib/worker.ts'

test.skipIf(!hasWrk())(
  'wrk: a service that answers nothing has as many wrong answers as there are connections',
  async () => {
    const silent = createServer(socket => socket.on('error', () => {})).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`
    const generators = new Generators('wrk')
    const result = await generators.run({ url, headers: {}, connections: 3, durationMs: 1000 })
    expect(result).toMatchObject({ requests: 0, wrong: 3 })
    await generators.stop()
    silent.close()
  },
)

test.skipIf(!hasBatch)('a generator interrupts nobody: it is scheduled as batch work', async () => {
  const worker = new Worker('bulk')
  await expect
    .poll(() => execFileSync('chrt', ['--pid', String(worker.pid)], { encoding: 'utf8' }))
    .toContain('SCHED_BATCH')
  await worker.stop()
})
