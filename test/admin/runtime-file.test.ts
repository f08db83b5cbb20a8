import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { findRuntimeFiles, removeRuntimeFile, writeRuntimeFile } from '../../admin/index.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-run-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const content = { component: 'server', pid: process.pid, url: 'http://127.0.0.1:1', token: 'secret' }
const find = (environment: Record<string, string>) =>
  findRuntimeFiles(environment).filter(file => file.pid === process.pid && file.url === content.url)

test('is 0600, is found in the same environment, and goes away', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  const path = writeRuntimeFile(content, environment)
  expect(path.startsWith(folder)).toBe(true)
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(find(environment)).toEqual([content])
  removeRuntimeFile(path)
  expect(existsSync(path)).toBe(false)
  expect(find(environment)).toEqual([])
})

test('one of a process that has ended is not shown', () => {
  const environment = { RUNTIME_DIRECTORY: folder }
  // Above the largest pid of Linux.
  writeRuntimeFile({ ...content, pid: 4_194_305 }, environment)
  expect(findRuntimeFiles(environment).filter(file => file.pid === 4_194_305)).toEqual([])
})

test('the folder in XDG_RUNTIME_DIR is made for its owner alone', () => {
  const path = writeRuntimeFile(content, { XDG_RUNTIME_DIR: folder })
  expect(path.startsWith(join(folder, 'sallyport/'))).toBe(true)
  expect(statSync(join(folder, 'sallyport')).mode & 0o777).toBe(0o700)
})

test('a folder that others may write, or a link, is neither written nor believed', () => {
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
