import { existsSync, readdirSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { findRuntimeFiles } from '../../../admin/index.ts'
import { startAdmin } from '../../../cli/service/admin.ts'
import { noLogger } from '../../../protocol/base/log.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-admin-'))
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
})
afterEach(async () => {
  vi.useRealTimers()
  await rm(folder, { recursive: true, force: true })
})

test('a runtime file that is cleaned away is written again, and removed at the end', async () => {
  const environment = { XDG_RUNTIME_DIR: folder }
  const admin = await startAdmin({
    component: 'router',
    admin: { host: '127.0.0.1', port: 0 },
    isGiven: true,
    tokenFile: undefined,
    health: 'off',
    sockets: new Map(),
    reusePort: false,
    environment,
    logger: noLogger,
    diagnose: async () => ({}),
  })
  const found = () => findRuntimeFiles(environment).filter(({ pid }) => pid === process.pid)
  const before = found()
  expect(before).toHaveLength(1)
  rmSync(join(folder, 'sallyport'), { recursive: true })
  expect(found()).toEqual([])
  vi.advanceTimersByTime(60_000)
  expect(found()).toEqual(before)
  await admin.close()
  expect(readdirSync(join(folder, 'sallyport'))).toEqual([])
  vi.advanceTimersByTime(60_000)
  expect(existsSync(join(folder, 'sallyport', `router-${process.pid}.json`))).toBe(false)
})
