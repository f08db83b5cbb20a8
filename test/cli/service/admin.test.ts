import { existsSync, readdirSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { findRuntimeFiles } from '../../../admin/index.ts'
import { endpointOf, requestAction, view } from '../../../cli/admin-client.ts'
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

const start = (environment: Record<string, string>, component: 'router' | 'server') =>
  startAdmin({
    ...{ component, admin: { host: '127.0.0.1', port: 0 }, isGiven: true, tokenFile: undefined, health: 'off' },
    ...{ sockets: new Map(), reusePort: false, environment, logger: noLogger, diagnose: async () => ({}) },
  })

test('whoever asks a server for something while it starts hears that', async () => {
  const environment = { XDG_RUNTIME_DIR: folder }
  const admin = await start(environment, 'server')
  const [file] = findRuntimeFiles(environment).filter(({ pid }) => pid === process.pid)
  const endpoint = endpointOf(file!)
  const hears = async (asked: Promise<unknown>) => await asked.then(String, (error: Error) => error.message)
  const starting = `${file!.url} answered 503: it is still starting`
  expect(await hears(view(endpoint, '/inbox'))).toBe(starting)
  expect(await hears(requestAction(endpoint, '/inbox/replay', {}))).toBe(starting)
  expect(await view(endpoint, '/status')).toMatchObject({ component: 'server', ready: false })
  admin.show({ ready: () => true, status: () => ({}), snapshot: () => ({}) })
  const older = (path: string) => `${file!.url} has no ${path}: it is not a server, or an older version`
  expect(await hears(view(endpoint, '/inbox'))).toBe(older('/inbox'))
  expect(await hears(requestAction(endpoint, '/inbox/replay', {}))).toBe(older('/inbox/replay'))
  await admin.close()
})

test('a runtime file that is cleaned away is written again, and removed at the end', async () => {
  const environment = { XDG_RUNTIME_DIR: folder }
  const admin = await start(environment, 'router')
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
