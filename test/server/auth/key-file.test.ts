import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { createKeys, type TokenKeys } from '../../../certs/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type * as plainFile from '../../../protocol/base/plain-file.ts'
import { fileKeys } from '../../../server/auth/key-file.ts'
import { eventually } from '../../support/until.ts'

/** What a read waits for once the file has been read. */
const slow = vi.hoisted(() => ({ reads: 0, until: Promise.resolve() }))
vi.mock('../../../protocol/base/plain-file.ts', async original => {
  const real = await original<typeof plainFile>()
  const readPlain = async (file: string, maxBytes?: number) => {
    const bytes = await real.readPlain(file, maxBytes)
    slow.reads++
    await slow.until
    return bytes
  }
  return { ...real, readPlain }
})

test('what is wrong with the file is logged once, however often tokens with unknown keys have it read again', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-keys-'))
  const file = join(folder, 'jwks.json')
  const good = JSON.stringify((await createKeys()).jwks)
  await writeFile(file, good)
  const logged: string[] = []
  const error = ({ err }: { err: Error }) => void logged.push(err.message)
  let now = 0
  const source = await fileKeys(file, { ...noLogger, error } as never, () => now)
  const read = async () => {
    now += 1000
    await source.refresh()
  }
  for (const text of ['{', '{ ', '{}', good, '{}']) {
    await writeFile(`${file}.new`, text)
    await rename(`${file}.new`, file)
    for (let times = 0; times < 3; times++) await read()
  }
  expect(logged).toEqual(['is not JSON', 'has no list `keys`', 'has no list `keys`'].map(what => `the key set ${what}`))
  source.close()
  await rm(folder, { recursive: true })
})

test('a key set that is replaced while the old one is being read is read again', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-keys-'))
  const file = join(folder, 'jwks.json')
  const [first, second, third] = [await createKeys(), await createKeys(), await createKeys()]
  const put = async ({ jwks }: TokenKeys) => {
    await writeFile(`${file}.new`, JSON.stringify(jwks))
    await rename(`${file}.new`, file)
  }
  await put(first)
  const source = await fileKeys(file, noLogger, Date.now)
  const { promise, resolve } = Promise.withResolvers<void>()
  slow.until = promise
  slow.reads = 0
  await put(second)
  await eventually(() => expect(slow.reads).toBe(1))
  await put(third)
  resolve()
  const { alg, kid } = third.jwks.keys[0]!
  await eventually(() => source.current!({ alg: alg!, kid: kid! }))
  source.close()
  await rm(folder, { recursive: true })
})
