import { chmodSync, globSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { writeFiles } from '../../../certs/index.ts'
import { loadInboxKeys } from '../../../cli/service/inbox-key.ts'
import { makeDurable, makeDurableSync } from '../../../protocol/base/durable.ts'
import { NextFile } from '../../../server/auth/next-file.ts'

/** What changes names or makes them durable, in the order of the calls. */
const calls = vi.hoisted((): string[] => [])
const refusal = vi.hoisted((): { code?: string } => ({}))

vi.mock('node:fs', async original => {
  const real = await original<typeof import('node:fs')>()
  const paths = new Map<number, unknown>()
  return {
    ...real,
    openSync(...args: Parameters<typeof real.openSync>) {
      const descriptor = real.openSync(...args)
      paths.set(descriptor, args[0])
      return descriptor
    },
    fsyncSync(descriptor: number) {
      if (refusal.code !== undefined) throw Object.assign(new Error(refusal.code), refusal)
      real.fsyncSync(descriptor)
      calls.push(`sync ${paths.get(descriptor)}`)
    },
    linkSync(...args: Parameters<typeof real.linkSync>) {
      real.linkSync(...args)
      calls.push(`name ${args[1]}`)
    },
  }
})
vi.mock('node:fs/promises', async original => {
  const real = await original<typeof import('node:fs/promises')>()
  const named = (how: 'link' | 'rename') => async (from: string, to: string) => {
    await real[how](from, to)
    calls.push(`name ${to}`)
  }
  return {
    ...real,
    link: named('link'),
    rename: named('rename'),
    async open(...args: Parameters<typeof real.open>): Promise<FileHandle> {
      const handle = await real.open(...args)
      const { sync } = handle
      handle.sync = async () => {
        if (refusal.code !== undefined) throw Object.assign(new Error(refusal.code), refusal)
        await sync.call(handle)
        calls.push(`sync ${args[0]}`)
      }
      return handle
    },
  }
})

const ROOT = resolve(import.meta.dirname, '../../..')
let folder = ''
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'sallyport-durable-')))
  calls.length = 0
})
afterEach(() => {
  delete refusal.code
  rmSync(folder, { recursive: true })
})

/** The calls behind the last one that gives `path` its name. */
const after = (path: string) => calls.slice(calls.indexOf(`name ${path}`) + 1)

test('a power cut loses no inbox key that a client has announced', () => {
  const path = join(folder, 'key.pem')
  loadInboxKeys(path)
  expect(calls).toEqual([expect.stringContaining(`sync ${path}.`), `name ${path}`, `sync ${folder}`])
  // Another client may have created it just now, and not have synced the folder yet.
  calls.length = 0
  loadInboxKeys(path)
  expect(calls).toEqual([`sync ${folder}`])
})

test('a power cut loses no revocation that was reported as kept', async () => {
  const path = join(folder, 'revocations.json')
  await writeFiles([{ path, text: '', secret: false }])
  calls.length = 0
  const next = await NextFile.open(path)
  await next.replace('{}')
  await next.close()
  expect(calls).toEqual([`sync ${path}.next`, `name ${path}`, `sync ${folder}`])
})

test.each([false, true])(
  'a power cut loses none of the files that were written, nor their folders (force: %s)',
  async force => {
    const [one, other] = [join(folder, 'a/b/one'), join(folder, 'other')]
    const files = [one, other].map(path => ({ path, text: path, secret: true }))
    await writeFiles(files, { force })
    expect(after(other).sort()).toEqual([folder, join(folder, 'a'), join(folder, 'a/b')].map(path => `sync ${path}`))
    expect(calls.indexOf(`name ${one}`)).toBeLessThan(calls.indexOf(`name ${other}`))
  },
)

test('a folder that cannot be synced is no failure, but a disk that fails is one', async () => {
  refusal.code = 'EINVAL'
  makeDurableSync(folder)
  await makeDurable(folder)
  refusal.code = 'EIO'
  expect(() => makeDurableSync(folder)).toThrow('EIO')
  await expect(makeDurable(folder)).rejects.toThrow('EIO')
  await expect(writeFiles([{ path: join(folder, 'file'), text: '', secret: false }])).rejects.toThrow('EIO')
  delete refusal.code
  chmodSync(folder, 0o300)
  makeDurableSync(folder)
  await makeDurable(folder)
})

test('whatever gives files their names makes these durable', () => {
  const files = globSync('{admin,certs,cli,client,protocol,router,server,tracing}/**/*.ts', { cwd: ROOT })
  const naming = files.filter(file => {
    const text = readFileSync(resolve(ROOT, file), 'utf8')
    const imported = [...text.matchAll(/import \{([^}]*)\} from 'node:fs(?:\/promises)?'/g)].join()
    return /\b(?:copyFile|link|rename)(?:Sync)?\b/.test(imported) && !/\bmakeDurable(?:Sync)?\(/.test(text)
  })
  expect(naming).toEqual([])
})
