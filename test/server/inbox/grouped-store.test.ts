/** What all stores have in common, over one whose disk a test controls. */
import { afterEach, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { GroupedStore, UnusableError } from '../../../server/inbox/grouped-store.ts'
import type { Change, ChangeResult, StoreState } from '../../../server/inbox/store.ts'
import { until } from '../../support/until.ts'
import { append, message } from './messages.ts'

afterEach(() => {
  vi.useRealTimers()
})

class Held extends GroupedStore {
  readonly taken: Change[] = []
  held = false
  free: () => void = () => {}
  opened = 0
  opens = Promise.resolve()
  protected readonly place = {}
  protected override readonly startMs = 20

  protected override async reopen(): Promise<Extract<StoreState, { open: true }>> {
    this.opened++
    await this.opens
    return { open: true, contents: { counts: [], lanes: [], rules: [], paused: [] }, setAside: undefined }
  }

  protected override async commit(changes: readonly Change[]): Promise<ChangeResult[]> {
    if (this.held) await new Promise<void>(resolve => (this.free = resolve))
    this.taken.push(...changes)
    return changes.map(() => ({ status: 'stored', id: '' }))
  }

  protected override end(): Promise<void> {
    return Promise.resolve()
  }

  next = () => Promise.resolve([])
  part = () => Promise.resolve(undefined)
  list = () => Promise.resolve([])
  sweep = () => Promise.resolve({ expired: [], more: false })
  counts = () => Promise.resolve([])
  lanes = () => Promise.resolve([])
}

test('a store that takes long to open: the start does not wait for it, and webhooks get 503 until it is open', async () => {
  const store = new Held(noLogger)
  const { promise, resolve } = Promise.withResolvers<void>()
  store.opens = promise
  await store.start()
  await expect(append(store, message('early'))).rejects.toThrow('not open yet')
  const open = new Promise<void>(done => {
    store.onState = state => state.open && done()
  })
  resolve()
  await open
  expect(await append(store, message('late'))).toMatchObject({ status: 'stored' })
  expect(store.opened).toBe(1)
  await store.close()
  await expect(append(store, message('after'))).rejects.toThrow('the store is closed')
})

test('a store that turns out late to be unusable is offline, and is tried again', async () => {
  const store = new Held(noLogger)
  const { promise, reject } = Promise.withResolvers<void>()
  store.opens = promise
  await store.start()
  const lost = new Promise<string>(done => {
    store.onState = state => !state.open && state.problem !== 'not open yet' && done(state.problem)
  })
  store.opens = Promise.resolve()
  reject(new UnusableError('it is of something else'))
  expect(await lost).toBe('it is of something else')
  await until(() => store.stats().open)
  await store.close()
})

test('a disk that hangs: whatever waits is refused within ten seconds, and new webhooks at once, until it works again', async () => {
  vi.useFakeTimers()
  const store = new Held(noLogger)
  await store.start()
  store.held = true
  const waits = append(store, message('held')).catch((error: Error) => error.message)
  await vi.advanceTimersByTimeAsync(5000)
  const behind = append(store, message('behind')).catch((error: Error) => error.message)
  await vi.advanceTimersByTimeAsync(5010)
  expect(await waits).toBe('no commit within 10 s')
  expect(await behind).toBe('no commit within 10 s')
  expect(store.stats()).toMatchObject({ open: false, problem: 'no commit within 10 s' })
  await expect(append(store, message('late'))).rejects.toThrow('no commit within 10 s')
  store.held = false
  store.free()
  await vi.advanceTimersByTimeAsync(1000)
  expect(store.opened).toBe(2)
  const works = append(store, message('again'))
  await vi.advanceTimersByTimeAsync(2)
  expect(await works).toMatchObject({ status: 'stored' })
  await vi.advanceTimersByTimeAsync(20_000)
  expect(store.stats()).toMatchObject({ open: true })
  await store.close()
})

test('a slow commit shows for a minute or two, even if no other one follows', async () => {
  vi.useFakeTimers()
  const store = new Held(noLogger)
  await store.start()
  store.held = true
  const slow = append(store, message('slow'))
  await vi.advanceTimersByTimeAsync(3000)
  store.free()
  await slow
  expect(store.stats().commitMaxSeconds).toBeGreaterThan(2)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(store.stats().commitMaxSeconds).toBeGreaterThan(2)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(store.stats().commitMaxSeconds).toBe(0)
  await store.close()
})
