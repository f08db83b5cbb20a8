import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { awaitStop, type StopSignal, unlessNow } from '../../../cli/service/stop.ts'
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

test('the first asks for a graceful end, the second for the end at once', async () => {
  process.emit('SIGTERM', 'SIGTERM')
  await expect(stop.stopped).resolves.toBe('SIGTERM')
  expect(stop.now.aborted).toBe(false)
  process.emit('SIGTERM', 'SIGTERM')
  expect(stop.now.aborted).toBe(true)
})

test('the echo of one Ctrl-C is not a second one', () => {
  process.emit('SIGINT', 'SIGINT')
  vi.advanceTimersByTime(20)
  process.emit('SIGINT', 'SIGINT')
  expect(stop.now.aborted).toBe(false)
  vi.advanceTimersByTime(1000)
  process.emit('SIGINT', 'SIGINT')
  expect(stop.now.aborted).toBe(true)
})

test('SIGHUP ends a service whose terminal is gone; its echo is not a second one', async () => {
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

test('closing is waited for, unless a second signal comes', async () => {
  await expect(unlessNow(Promise.resolve(), stop.now)).resolves.toBeUndefined()
  process.emit('SIGTERM', 'SIGTERM')
  const waiting = unlessNow(new Promise(() => {}), stop.now)
  process.emit('SIGTERM', 'SIGTERM')
  await expect(waiting).resolves.toBeUndefined()
})
