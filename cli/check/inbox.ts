import { randomBytes } from 'node:crypto'
import { open, rm, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Probe } from '../../protocol/base/probe.ts'
import type { ServerConfig } from '../config/server.ts'
import { size } from '../table.ts'

const WRITES = 100
const WRITE_BYTES = 4096
const PATIENCE_MS = 4000
/** Senders wait for the disk. Many webhooks share one write. */
const SLOW_MS = 100

/** Checks that the folder of an inbox is writable, how long its disk takes to sync a write, and how much space is left. */
export async function probeInbox(config: ServerConfig): Promise<Probe[]> {
  const [, path] = /^sqlite:(.+)$/.exec(config.inbox) ?? []
  if (path === undefined) return []
  const disk = { code: 'inbox-disk', what: `--inbox ${config.inbox}`, expected: `synced within ${SLOW_MS} ms` }
  const room = { code: 'inbox-room', what: dirname(path), expected: `${size(config['inbox.disk-free'])} free` }
  try {
    const p99 = await syncP99(path)
    const found = `${p99.toFixed(1)} ms to sync 4 KiB (p99 of fsync)`
    const isSlow = p99 > SLOW_MS
    const hint = isSlow ? 'Use a local disk whose cache survives power loss.' : ''
    const { bavail, bsize } = await statfs(dirname(path))
    const free = bavail * bsize
    const isFull = free < config['inbox.disk-free']
    return [
      { ...disk, status: isSlow ? 'warn' : 'ok', found, hint },
      {
        ...room,
        status: isFull ? 'fail' : 'ok',
        found: `${size(free)} free`,
        hint: isFull ? 'Nothing more is stored: free some space, or lower --inbox.disk-free.' : '',
      },
    ]
  } catch (error) {
    const hint = 'The folder must exist, and this user must be able to write there.'
    return [
      { ...disk, status: 'fail', found: (error as Error).message, hint },
      { ...room, status: 'skip', found: 'not reached', hint: '' },
    ]
  }
}

/** Measured on a temporary file in the same folder. */
async function syncP99(path: string): Promise<number> {
  const file = `${path}.check-${randomBytes(6).toString('hex')}`
  const handle = await open(file, 'wx', 0o600)
  try {
    const block = randomBytes(WRITE_BYTES)
    const times: number[] = []
    const deadline = performance.now() + PATIENCE_MS
    while (times.length < WRITES && performance.now() < deadline) {
      const begun = performance.now()
      await handle.write(block)
      await handle.sync()
      times.push(performance.now() - begun)
    }
    return times.sort((a, b) => a - b)[Math.ceil(times.length * 0.99) - 1]!
  } finally {
    await handle.close()
    await rm(file, { force: true })
  }
}
