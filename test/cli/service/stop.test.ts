import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { awaitStop, type StopSignal, unlessGivenUp, untilSecondSignal } from '../../../cli/service/stop.ts'
import { noLogger } from '../../../protocol/base/log.ts'

let stop: StopSignal
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
  stop = awaitStop(noLogger)
})
afterEach(() => {
  stop.close()
  vi.useRealTimers()
})

test('the first signal asks for a graceful stop, the second for an immediate one', async () => {
  process.emit('SIGTERM', 'SIGTERM')
  await expect(stop.stopped).resolves.toBe('SIGTERM')
  expect(stop.now.aborted).toBe(false)
  process.emit('SIGTERM', 'SIGTERM')
  expect(stop.now.aborted).toBe(true)
})

test('the echo of one Ctrl-C does not count as a second one', () => {
  process.emit('SIGINT', 'SIGINT')
  vi.advanceTimersByTime(20)
  process.emit('SIGINT', 'SIGINT')
  expect(stop.now.aborted).toBe(false)
  vi.advanceTimersByTime(1000)
  process.emit('SIGINT', 'SIGINT')
  expect(stop.now.aborted).toBe(true)
})

test('SIGHUP ends a service whose terminal is gone, and its echo does not count as a second one', async () => {
  stop.close()
  stop = awaitStop(noLogger, true)
  process.emit('SIGHUP', 'SIGHUP')
  process.emit('SIGHUP', 'SIGHUP')
  await expect(stop.stopped).resolves.toBe('SIGHUP')
  expect(stop.now.aborted).toBe(false)
  process.emit('SIGTERM', 'SIGTERM')
  expect(stop.now.aborted).toBe(true)
})

test('another signal is never an echo', () => {
  process.emit('SIGINT', 'SIGINT')
  process.emit('SIGTERM', 'SIGTERM')
  expect(stop.now.aborted).toBe(true)
})

test('closing is awaited, unless a second signal arrives', async () => {
  await expect(untilSecondSignal(Promise.resolve(), stop.now)).resolves.toBeUndefined()
  process.emit('SIGTERM', 'SIGTERM')
  const waiting = untilSecondSignal(new Promise(() => {}), stop.now)
  process.emit('SIGTERM', 'SIGTERM')
  await expect(waiting).resolves.toBeUndefined()
})

describe('a start', () => {
  const never = new Promise<string>(() => {})
  const die = vi.fn(() => {})
  const watched = (starting: Promise<string>) => unlessGivenUp(starting, { ...stop, die }, noLogger)
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] })
    die.mockClear()
  })

  test('succeeds or fails if nobody aborts it', async () => {
    await expect(watched(Promise.resolve('service'))).resolves.toBe('service')
    await expect(watched(Promise.reject(new Error('bad')))).rejects.toThrow('bad')
    expect(vi.getTimerCount()).toBe(0)
  })

  test('that fails after the first signal was aborted', async () => {
    const { promise, reject } = Promise.withResolvers<string>()
    const watching = watched(promise)
    process.emit('SIGTERM', 'SIGTERM')
    reject(new Error('given up'))
    await expect(watching).resolves.toBeUndefined()
    expect([die.mock.calls.length, vi.getTimerCount()]).toEqual([0, 0])
  })

  test.each(['during the start', 'before it'])('that hangs is ended by the signal, which came %s', async when => {
    if (when === 'before it') process.emit('SIGTERM', 'SIGTERM')
    const watching = watched(never)
    if (when !== 'before it') process.emit('SIGTERM', 'SIGTERM')
    await vi.advanceTimersByTimeAsync(2900)
    expect(die).not.toHaveBeenCalled()
    await vi.advanceTimersByTimeAsync(100)
    vi.useRealTimers()
    await expect(watching).resolves.toBeUndefined()
    expect(die).toHaveBeenCalledOnce()
  })

  test('is not awaited after a second signal', async () => {
    const watching = watched(never)
    process.emit('SIGTERM', 'SIGTERM')
    process.emit('SIGTERM', 'SIGTERM')
    vi.useRealTimers()
    await expect(watching).resolves.toBeUndefined()
    expect(die).toHaveBeenCalledOnce()
  })
})
