/** A process that appends until it is killed, and prints each id once it is durable: `appender.ts FILE PREFIX`. */
import { noLogger } from '../../../protocol/base/log.ts'
import { openSqlite } from '../../../server/inbox/sqlite.ts'

const [path = '', prefix = ''] = process.argv.slice(2)
const store = await openSqlite({ path, minFreeBytes: 0, logger: noLogger })
const common = {
  runtime: 'demo',
  lane: 'l',
  route: 'r',
  why: 'offline',
  bytes: 1002,
  parts: 2,
  reason: '',
  dedupe: '',
  key: '',
  enc: '',
  caller: '',
}
const numbers = { attempts: 0, failures: 0, refusals: 0, failedSince: 0, next: 0, dedupeMs: 0 }
const head = new Uint8Array(2)
const rest = new Uint8Array(1000)
for (let i = 0; ; i += 8) {
  const group = Array.from({ length: 8 }, async (_, k) => {
    const id = `${prefix}-${i + k}`
    const received = Date.now()
    const message = { id, ...common, ...numbers, received, expires: received + 1e9 }
    await store.apply({ op: 'append', message, head, rest, at: message.received })
    // Synchronous for a pipe, and blocks if it is full.
    process.stdout.write(`${id}\n`)
  })
  await Promise.all(group)
}
