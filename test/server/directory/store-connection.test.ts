/** A store that a test plays: what is not asked, and which answers do not count. */
import { afterEach, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { SharedDirectory } from '../../../server/directory/shared-directory.ts'
import type { DirectoryStore, StoreLink, StoreListener } from '../../../server/directory/store.ts'
import { StoreConnection } from '../../../server/directory/store-connection.ts'
import { until } from '../../support/until.ts'

const RENEWED = JSON.stringify(['60000', '0'])
const LOOK = { operation: 'look', runtime: 'demo', instance: '', presented: 0, seen: 0, seenActive: '' } as const

const closing: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const one of closing.splice(0)) await one.close()
})

function storeOf(link: Partial<StoreLink>) {
  const listeners: StoreListener[] = []
  const store: DirectoryStore = {
    kind: 'fake',
    async open(listener) {
      listeners.push(listener)
      return { change: async () => null, renew: async () => RENEWED, close() {}, ...link }
    },
    isAbsent: () => false,
  }
  return { store, listeners }
}

function connectTo(store: DirectoryStore, prepare = async () => {}): StoreConnection {
  const owner = {
    ...{ notice() {}, mayHaveMissed() {}, renewed() {}, isTelling: () => false, latest: () => 0 },
    ...{ async upkeep() {}, closed() {}, absent() {}, unreachable() {}, updateState() {} },
  }
  const options = { store, leaseMs: 60_000, now: () => performance.now(), logger: noLogger, prepare }
  const connection = new StoreConnection(options, owner)
  closing.push(connection)
  return connection
}

test('nothing is changed before the lease is renewed', async () => {
  const renewed = Promise.withResolvers<string>()
  const renew = vi.fn(() => renewed.promise)
  const change = vi.fn(async () => null)
  const connection = connectTo(storeOf({ renew, change }).store)
  await expect(connection.change(LOOK)).rejects.toThrow('the directory is not reachable')
  const opened = connection.open()
  await until(() => renew.mock.calls.length === 1)
  await expect(connection.change(LOOK)).rejects.toThrow('the directory is not reachable')
  renewed.resolve(RENEWED)
  await opened
  expect(change).not.toHaveBeenCalled()
  expect(await connection.change(LOOK)).toBeNull()
})

test('a link is not used before what must come first is done; if that fails, there is another link', async () => {
  const renew = vi.fn(async () => RENEWED)
  const close = vi.fn()
  const { store, listeners } = storeOf({ renew, close })
  const steps = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
  const connection = connectTo(store, async () => await steps[listeners.length - 1]?.promise)
  const opened = connection.open()
  await until(() => listeners.length === 1)
  steps[0]!.reject(new Error('on purpose'))
  await opened
  expect([connection.failure?.message, close.mock.calls.length]).toEqual(['on purpose', 1])
  await until(() => listeners.length === 2)
  listeners[1]!.closed(new Error('on purpose'))
  steps[1]!.resolve()
  await until(() => listeners.length === 3)
  expect([renew.mock.calls.length, connection.isOpen]).toEqual([0, false])
  steps[2]!.resolve()
  await until(() => connection.isOpen)
  expect(renew).toHaveBeenCalledTimes(1)
})

test('an answer does not count if its link has ended meanwhile', async () => {
  const answer = Promise.withResolvers<null>()
  const { store, listeners } = storeOf({ change: () => answer.promise })
  const connection = connectTo(store)
  await connection.open()
  const changed = connection.change(LOOK)
  listeners[0]!.closed(new Error('on purpose'))
  answer.resolve(null)
  await expect(changed).rejects.toThrow('the directory was lost meanwhile')
})

test('a notice that is too long is not read', async () => {
  const { store, listeners } = storeOf({})
  const warn = vi.fn()
  const logger = { ...noLogger, warn }
  const directory = new SharedDirectory({ store, replica: 'a', leaseMs: 60_000, logger })
  closing.push(directory)
  await directory.open()
  listeners[0]!.notice(JSON.stringify(['demo', '1', 'one', '1', '0', 'one', '1 b']) + ' '.repeat(2_400_000))
  const err = expect.objectContaining({ message: expect.stringContaining('characters long') })
  expect(warn).toHaveBeenCalledWith({ err }, "a message on the directory's channel cannot be read")
})
