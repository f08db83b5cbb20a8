import { execFileSync } from 'node:child_process'
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { FileExistsError, writeFiles } from '../../certs/index.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-files-'))
})
afterEach(() => {
  vi.restoreAllMocks()
  return rm(folder, { recursive: true })
})

const file = (name: string, text: string, secret = false) => ({ path: join(folder, name), text, secret })

test('C5: secrets are readable by their owner only, other files by all, and folders are created', async () => {
  await writeFiles([file('deep/key.pem', 'key', true), file('deep/cert.pem', 'cert')])
  expect((await stat(join(folder, 'deep/key.pem'))).mode & 0o777).toBe(0o600)
  expect((await stat(join(folder, 'deep/cert.pem'))).mode & 0o777).toBe(0o644)
})

test('an existing file is not overwritten, and then nothing else of the set is written', async () => {
  await writeFile(join(folder, 'b'), 'old')
  await expect(writeFiles([file('a', 'new'), file('b', 'new')])).rejects.toThrow(FileExistsError)
  expect(await readdir(folder)).toEqual(['b'])
  expect(await readFile(join(folder, 'b'), 'utf8')).toBe('old')
})

/** Calls `then` before the file with this text is written. */
async function beforeWriting(text: string, then: () => Promise<unknown>) {
  const handle = await open(folder)
  const prototype = Object.getPrototypeOf(handle)
  await handle.close()
  const { writeFile: write } = prototype
  vi.spyOn(prototype, 'writeFile').mockImplementation(async function (this: unknown, given) {
    if (given === text) await then()
    await write.call(this, given)
  })
}

test.each(['no room', 'a folder'])('if the last of a set cannot be written (%s), all stay as they were', async why => {
  await writeFiles([file('key', 'old', true)])
  if (why === 'a folder') await mkdir(join(folder, 'cert'))
  else {
    await writeFiles([file('cert', 'old')])
    await beforeWriting('new cert', () => Promise.reject(new Error('ENOSPC')))
  }
  const before = await readdir(folder)
  const written = writeFiles([file('key', 'new', true), file('cert', 'new cert')], { force: true })
  await expect(written).rejects.toThrow(why === 'a folder' ? 'is a folder' : 'ENOSPC')
  expect(await readFile(join(folder, 'key'), 'utf8')).toBe('old')
  expect(await readdir(folder)).toEqual(before)
})

test('if the last of a set cannot get its name, those before it are put back, and new ones are removed', async () => {
  await writeFiles([file('key', 'old', true)])
  const { ino, uid, mode } = await stat(join(folder, 'key'))
  // No file can be renamed over a folder.
  await beforeWriting('new cert', () => mkdir(join(folder, 'cert')))
  const set = [file('key', 'new', true), file('chain', 'new'), file('cert', 'new cert')]
  await expect(writeFiles(set, { force: true })).rejects.toThrow('EISDIR')
  expect(await readFile(join(folder, 'key'), 'utf8')).toBe('old')
  expect(await stat(join(folder, 'key'))).toMatchObject({ ino, uid, mode })
  expect(await readdir(folder)).toEqual(['cert', 'key'])
})

test('without force, nothing of a set stays if one of its files appears meanwhile', async () => {
  await beforeWriting('new cert', () => writeFile(join(folder, 'cert'), 'of another'))
  await expect(writeFiles([file('key', 'new', true), file('cert', 'new cert')])).rejects.toThrow(FileExistsError)
  expect(await readdir(folder)).toEqual(['cert'])
})

test('a link that leads nowhere is an existing file', async () => {
  await symlink('nowhere', join(folder, 'cert'))
  const isWritten = vi.fn(async () => {})
  await beforeWriting('new', isWritten)
  await expect(writeFiles([file('cert', 'new')])).rejects.toThrow(FileExistsError)
  expect(isWritten).not.toHaveBeenCalled()
})

test('with force, a link that leads nowhere stays a link, and what it names is created', async () => {
  await mkdir(join(folder, 'run'))
  await symlink('run', join(folder, 'here'))
  await symlink('../token', join(folder, 'run/first'))
  await symlink('here/first', join(folder, 'second'))
  await writeFiles([file('second', 'new', true)], { force: true })
  expect(await readFile(join(folder, 'token'), 'utf8')).toBe('new')
  expect((await readdir(folder)).sort()).toEqual(['here', 'run', 'second', 'token'])
  expect((await lstat(join(folder, 'run/first'))).isSymbolicLink()).toBe(true)
})

test('with force, a link whose way leads through what is missing to itself is an error', async () => {
  await symlink('missing/../cert', join(folder, 'cert'))
  await expect(writeFiles([file('cert', 'new')], { force: true })).rejects.toThrow('ENOENT')
  expect(await readdir(folder)).toEqual(['cert'])
})

test("with force it is replaced as a whole, and a secret does not inherit the old file's mode", async () => {
  await writeFile(join(folder, 'key'), 'old', { mode: 0o644 })
  await writeFiles([file('key', 'new', true)], { force: true })
  expect(await readFile(join(folder, 'key'), 'utf8')).toBe('new')
  expect((await stat(join(folder, 'key'))).mode & 0o777).toBe(0o600)
  expect(await readdir(folder)).toEqual(['key'])
})

test('with keepRights owner, group and mode stay, but a secret is never readable by all', async () => {
  const rights = async (name: string) => {
    const { uid, gid, mode } = await stat(join(folder, name))
    return { uid, gid, mode: mode & 0o777 }
  }
  for (const [name, mode] of [
    ['key', 0o640],
    ['open', 0o644],
    ['set', 0o660],
  ] as const) {
    await writeFile(join(folder, name), 'old')
    await chmod(join(folder, name), mode)
    // The service's, as in deploy/systemd.
    if (process.getuid?.() === 0) await chown(join(folder, name), 12_345, 23_456)
  }
  const { uid, gid } = await rights('key')
  const fresh = [file('key', 'new', true), file('open', 'new', true), file('set', 'new')]
  await writeFiles(fresh, { keepRights: true })
  expect(await readFile(join(folder, 'key'), 'utf8')).toBe('new')
  expect(await Promise.all(['key', 'open', 'set'].map(rights))).toEqual([
    { uid, gid, mode: 0o640 },
    { uid, gid, mode: 0o640 },
    { uid, gid, mode: 0o660 },
  ])
})

test('who owns the folder and puts a link where a file is being written gives away no other file', async () => {
  const victim = join(folder, 'elsewhere')
  await writeFile(victim, 'private', { mode: 0o600 })
  await mkdir(join(folder, 'service'))
  const replaced = await open(join(folder, 'service/cert'), 'w', 0o644)
  if (process.getuid?.() === 0) await replaced.chown(12_345, 23_456)
  await replaced.close()
  const { uid, gid, mode } = await stat(victim)
  const { writeFile: write } = Object.getPrototypeOf(replaced)
  vi.spyOn(Object.getPrototypeOf(replaced), 'writeFile').mockImplementation(async function (this: unknown, text) {
    await write.call(this, text)
    const [name] = (await readdir(join(folder, 'service'))).filter(name => name.startsWith('.cert'))
    await rm(join(folder, 'service', name!))
    await symlink(victim, join(folder, 'service', name!))
  })
  await writeFiles([file('service/cert', 'new')], { keepRights: true })
  expect(await stat(victim)).toMatchObject({ uid, gid, mode })
})

test('a replaced file is another inode: readers of the old one never see part of the new one', async () => {
  await writeFiles([file('token', 'one', true)])
  const before = (await stat(join(folder, 'token'))).ino
  await writeFiles([file('token', 'two', true)], { force: true })
  expect((await stat(join(folder, 'token'))).ino).not.toBe(before)
})

test('a file that appears between the check and the write is not lost', async () => {
  const results = await Promise.allSettled([writeFiles([file('x', 'one')]), writeFiles([file('x', 'two')])])
  expect(results.map(result => result.status).sort()).toEqual(['fulfilled', 'rejected'])
  expect(await readdir(folder)).toEqual(['x'])
})

test('a file that is not regular is written in place, and a link stays', async () => {
  const pipe = join(folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  const [read] = await Promise.all([readFile(pipe, 'utf8'), writeFiles([file('pipe', 'text', true)], { force: true })])
  expect([read, (await lstat(pipe)).isFIFO()]).toEqual(['text', true])
  await mkdir(join(folder, 'elsewhere'))
  await writeFile(join(folder, 'elsewhere/token'), 'old')
  await symlink('elsewhere/token', join(folder, 'token'))
  await writeFiles([file('token', 'new', true)], { force: true })
  expect((await lstat(join(folder, 'token'))).isSymbolicLink()).toBe(true)
  expect(await readFile(join(folder, 'elsewhere/token'), 'utf8')).toBe('new')
  expect(await readdir(join(folder, 'elsewhere'))).toEqual(['token'])
})
