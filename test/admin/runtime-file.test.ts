import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { findRuntimeFiles, removeRuntimeFile, tokenOf, writeRuntimeFile } from '../../admin/index.ts'
import { needs } from '../support/needs.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-run-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const content = { component: 'server', pid: process.pid, url: 'http://127.0.0.1:1', token: 'secret' }
const find = (environment: Record<string, string>) =>
  findRuntimeFiles(environment)
    .filter(file => file.pid === process.pid && file.url === content.url)
    .map(({ started: _, ...file }) => file)

test('is 0600, is found in the same environment, and disappears', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  const path = writeRuntimeFile(content, environment)
  expect(path.startsWith(folder)).toBe(true)
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(find(environment)).toEqual([content])
  removeRuntimeFile(path)
  expect(existsSync(path)).toBe(false)
  expect(find(environment)).toEqual([])
})

test('one of an ended process is not shown', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  // Above Linux's largest pid.
  writeRuntimeFile({ ...content, pid: 4_194_305 }, environment)
  expect(findRuntimeFiles(environment).filter(file => file.pid === 4_194_305)).toEqual([])
})

test.runIf(process.platform === 'linux')('one of a process whose pid has been reused is not shown', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  writeRuntimeFile({ ...content, started: '1' }, environment)
  expect(find(environment)).toEqual([])
})

test('one without a start time, as on systems other than Linux, is judged by its pid', () => {
  writeFileSync(join(folder, 'server-1.json'), JSON.stringify(content), { mode: 0o600 })
  expect(find({ RUNTIME_DIRECTORY: folder })).toEqual([content])
})

test('the folder in XDG_RUNTIME_DIR is created for its owner only', () => {
  const path = writeRuntimeFile(content, { XDG_RUNTIME_DIR: folder })
  expect(path.startsWith(join(folder, 'sallyport/'))).toBe(true)
  expect(statSync(join(folder, 'sallyport')).mode & 0o777).toBe(0o700)
})

test('a folder that others may write, or a link, is neither written nor trusted', () => {
  const open = join(folder, 'open')
  mkdirSync(open)
  chmodSync(open, 0o777)
  const link = join(folder, 'link')
  symlinkSync(open, link)
  for (const directory of [open, link]) {
    const path = writeRuntimeFile(content, { RUNTIME_DIRECTORY: directory, XDG_RUNTIME_DIR: folder })
    expect(path.startsWith(join(folder, 'sallyport/'))).toBe(true)
    removeRuntimeFile(path)
  }
})

test('an invalid runtime file is ignored', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  const path = writeRuntimeFile(content, environment)
  for (const other of [
    '[]',
    'null',
    '{}',
    JSON.stringify({ ...content, url: 'file:///etc/passwd' }),
    JSON.stringify({ ...content, url: 'http://user@127.0.0.1:1' }),
    JSON.stringify({ ...content, token: ['secret'] }),
    JSON.stringify({ ...content, tokenFile: {} }),
    JSON.stringify({ ...content, more: 'x'.repeat(65_536) }),
  ]) {
    writeFileSync(path, other)
    expect(findRuntimeFiles(environment).filter(({ pid }) => pid === process.pid)).toEqual([])
  }
})

describe.runIf(needs('root'))('A8: root', () => {
  const SOMEBODY = 65_534
  /** What somebody wrote into their own folder. */
  function plant(name: string, more: object): string {
    const directory = join(folder, name)
    mkdirSync(directory, { mode: 0o700 })
    const path = join(directory, `server-${process.pid}.json`)
    writeFileSync(path, JSON.stringify({ ...content, ...more }))
    chownSync(path, SOMEBODY, SOMEBODY)
    chownSync(directory, SOMEBODY, SOMEBODY)
    return directory
  }
  const inUnit = (directory: string) => findRuntimeFiles({}, [directory]).find(({ url }) => url === content.url)

  test("trusts no other user's folder, wherever its name comes from", () => {
    const directory = plant('sallyport', {})
    expect(find({ RUNTIME_DIRECTORY: directory })).toEqual([])
    expect(find({ XDG_RUNTIME_DIR: folder })).toEqual([])
  })

  test('accepts from the user of a unit only what that user owns', () => {
    const directory = plant('unit', {})
    expect(inUnit(directory)).toEqual({ ...content, writtenBy: SOMEBODY })
    expect(tokenOf(inUnit(directory)!)).toBe('secret')

    const secret = join(folder, 'private.key')
    writeFileSync(secret, 'a-secret-of-root', { mode: 0o600 })
    const link = join(folder, 'link')
    symlinkSync(secret, link)
    for (const tokenFile of [secret, link, '/proc/self/environ', folder]) {
      const planted = inUnit(plant(`unit-${Math.random()}`, { token: undefined, tokenFile }))!
      expect(() => tokenOf(planted)).toThrow(/does not belong to the user|not a token file/)
    }
    chownSync(secret, SOMEBODY, SOMEBODY)
    expect(tokenOf(inUnit(plant('own', { token: undefined, tokenFile: secret }))!)).toBe('a-secret-of-root')
  })

  test('follows no link in such a folder, and reads no file of a third user there', () => {
    const mine = join(folder, 'mine.json')
    writeFileSync(mine, JSON.stringify(content))
    chownSync(mine, SOMEBODY - 1, SOMEBODY - 1)
    for (const place of [symlinkSync, linkSync]) {
      const directory = plant(`unit-${place.name}`, {})
      const path = join(directory, `server-${process.pid}.json`)
      rmSync(path)
      place(mine, path)
      expect(inUnit(directory)).toBeUndefined()
    }
  })
})
