import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import type * as promises from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { inTurn, markOf, readPlain, readPlainSync } from '../../../protocol/base/plain-file.ts'
import { eventually } from '../../support/until.ts'

/** What `open` does in place of the real one, for files with that name. */
const opened = vi.hoisted(() => new Map<string, () => Promise<never>>())
vi.mock('node:fs/promises', async original => {
  const real = await original<typeof promises>()
  const open = (file: string, flags: number) => opened.get(file)?.() ?? real.open(file, flags)
  return { ...real, open }
})

let folder: string
let file: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-plain-'))
  file = join(folder, 'file')
  execFileSync('mkfifo', [join(folder, 'pipe')])
  symlinkSync('/dev/zero', join(folder, 'endless'))
})
afterEach(() => {
  opened.clear()
  vi.useRealTimers()
})
afterAll(() => rmSync(folder, { recursive: true }))

test.each([0, 9, 10, 65_536, 70_000])('a file of %i bytes is read up to its bound, and no further', async bytes => {
  const text = 'x'.repeat(bytes)
  writeFileSync(file, text)
  expect(String(await readPlain(file, bytes))).toBe(text)
  expect(String(readPlainSync(file, bytes))).toBe(text)
  if (bytes === 0) return
  const problem = { code: 'EFBIG', message: `the file is over ${bytes - 1} bytes` }
  await expect(readPlain(file, bytes - 1)).rejects.toMatchObject(problem)
  expect(() => readPlainSync(file, bytes - 1)).toThrow(problem.message)
})

test.each([
  ['pipe', 'EFTYPE', 'it is not a plain file'],
  ['endless', 'EFTYPE', 'it is not a plain file'],
  ['.', 'EISDIR', 'it is a directory'],
])('%s is not read', async (name, code, message) => {
  await expect(readPlain(join(folder, name))).rejects.toMatchObject({ code, message })
  expect(() => readPlainSync(join(folder, name))).toThrow(message)
})

const beyondPatience = () => vi.advanceTimersByTimeAsync(10_001)
const silent = { code: 'ETIMEDOUT', message: 'the file system has not answered in 10 s' }

test('a file system that hangs is waited for once, and for a limited time; the others go on', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  writeFileSync(file, 'text')
  const asked: string[] = []
  const { promise: gone, reject } = Promise.withResolvers<never>()
  for (const name of ['/dead/one', '/dead/two', '/dead/three']) {
    opened.set(name, () => {
      asked.push(name)
      return gone
    })
  }
  const reads = Promise.allSettled([readPlain('/dead/one'), readPlain('/dead/two'), markOf('/dead/three')])
  expect(String(await readPlain(file))).toBe('text')
  await beyondPatience()
  const [one, two, three] = await reads
  expect([one, two]).toMatchObject([{ reason: silent }, { reason: silent }])
  expect(three).toMatchObject({ value: 'ETIMEDOUT' })
  expect(asked).toEqual(['/dead/one'])

  const late = readPlain('/dead/two')
  reject(new Error('it is back'))
  await expect(late).rejects.toThrow('it is back')
  expect(asked).toEqual(['/dead/one', '/dead/two'])
})

test('the time during which this process was frozen does not count', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
  const { promise, resolve } = Promise.withResolvers<void>()
  const call = inTurn('/slow/file', () => promise)
  // When it goes on, what fell due meanwhile is called once.
  vi.runOnlyPendingTimers()
  resolve()
  await call
})

test('two of them leave threads for whatever else needs some', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const ends: (() => void)[] = []
  const begin = (name: string) => {
    const call = inTurn(name, () => new Promise<void>(resolve => ends.push(resolve)))
    call.catch(() => {})
    return call
  }
  const calls = ['/a/1', '/b/1', '/c/1', '/c/2'].map(begin)
  expect(ends.length).toBe(2)
  await beyondPatience()
  expect((await Promise.allSettled(calls)).map(({ status }) => status)).toEqual(Array(4).fill('rejected'))
  expect(ends.length).toBe(2)
  const last = begin('/c/3')
  ends[0]!()
  await eventually(() => expect(ends.length).toBe(3))
  ends[1]!()
  ends[2]!()
  await last
})

test('a file that could not be opened for a while is readable once it can', async () => {
  const fails = async (): Promise<never> => Promise.reject(Object.assign(new Error(), { code: 'EMFILE' }))
  opened.set(file, fails)
  expect(await markOf(file)).toBe('EMFILE')
  opened.clear()
  const mark = await markOf(file)
  expect(mark).toMatch(/^\d+ \d+ \d+$/)
  expect(await markOf(file)).toBe(mark)
})

test('one that never answers keeps no process alive', () => {
  const program = `
    import { inTurn } from './protocol/base/plain-file.ts'
    inTurn('/dead/file', () => new Promise(() => {}))`
  execFileSync(process.execPath, ['--input-type=module-typescript', '--eval', program], { timeout: 120_000 })
})
