import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { BufferedStderr } from '../../../cli/service/buffered-stderr.ts'

type Written = (error: NodeJS.ErrnoException | null, bytes: number) => void

const disk = vi.hoisted(() => ({ problem: undefined as string | undefined, room: Number.POSITIVE_INFINITY, text: '' }))
vi.mock('node:fs', () => ({
  write(_: number, bytes: Uint8Array, written: Written) {
    const { problem } = disk
    const taken = bytes.subarray(0, disk.room)
    if (problem === undefined) disk.text += Buffer.from(taken).toString()
    const error = problem === undefined ? null : Object.assign(new Error(problem), { code: problem })
    queueMicrotask(() => written(error, problem === undefined ? taken.length : 0))
  },
  writeSync: () => {},
}))

beforeEach(() => {
  vi.useFakeTimers()
  Object.assign(disk, { problem: undefined, room: Number.POSITIVE_INFINITY, text: '' })
})
afterEach(() => vi.useRealTimers())

/** What the log contains at the end: a line before the trouble, some during it, and one after it. */
async function logThrough(code: string): Promise<string> {
  const stderr = new BufferedStderr()
  disk.room = 3
  stderr.write('before\n')
  await vi.advanceTimersByTimeAsync(0)
  disk.problem = code
  for (const line of ['one\n', 'two\n']) stderr.write(line)
  await vi.advanceTimersByTimeAsync(10_000)
  disk.problem = undefined
  stderr.write('after\n')
  await vi.advanceTimersByTimeAsync(10_000)
  return disk.text
}

describe('errors while the log is written', () => {
  test.each(['EAGAIN', 'ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'ENOMEM', 'EINTR'])(
    '%s may pass: no line is lost',
    async code => {
      expect(await logThrough(code)).toBe('before\none\ntwo\nafter\n')
    },
  )

  test.each(['EPIPE', 'ECONNRESET', 'ENOTCONN', 'EBADF'])('%s lasts: nothing more is written', async code => {
    expect(await logThrough(code)).toBe('before\n')
  })
})
