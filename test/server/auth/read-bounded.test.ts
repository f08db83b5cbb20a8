import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readBounded } from '../../../server/auth/read-bounded.ts'

let file: string
beforeAll(async () => {
  file = join(await mkdtemp(join(tmpdir(), 'sallyport-bounded-')), 'file')
})
afterAll(() => rm(join(file, '..'), { recursive: true }))

test.each([0, 9, 10, 65_536, 70_000])('a file of %i bytes is read up to its bound, and not beyond', async bytes => {
  const text = 'x'.repeat(bytes)
  await writeFile(file, text)
  expect(await readBounded(file, bytes)).toBe(text)
  if (bytes === 0) return
  await expect(readBounded(file, bytes - 1)).rejects.toThrow(new Error(`the file is over ${bytes - 1} bytes`))
})

test('a device that never ends is read no further than that', async () => {
  await expect(readBounded('/dev/zero', 100_000)).rejects.toThrow(new Error('the file is over 100000 bytes'))
})
