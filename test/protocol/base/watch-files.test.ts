import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type FilesWatch, watchFiles } from '../../../protocol/base/watch-files.ts'
import { eventually, until } from '../../support/until.ts'

let folder: string
let watching: FilesWatch | undefined
let told = 0
let warnings = 0
const logger = { trace() {}, debug() {}, info() {}, warn: () => void warnings++, error() {} }

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-files-'))
  told = 0
  warnings = 0
})
afterEach(() => {
  watching?.close()
  rmSync(folder, { recursive: true })
})

function startWatching(...names: string[]): void {
  watching = watchFiles(
    names.map(name => join(folder, name)),
    logger,
    () => told++,
  )
}

test('a change is reported soon, and several at once are reported once', async () => {
  writeFileSync(join(folder, 'cert'), 'one')
  startWatching('cert', 'key')
  writeFileSync(join(folder, 'cert'), 'two')
  writeFileSync(join(folder, 'key.new'), 'key')
  renameSync(join(folder, 'key.new'), join(folder, 'key'))
  await until(() => told > 0)
  await new Promise(resolve => setTimeout(resolve, 300))
  expect(told).toBe(1)
})

test('each change is found without a watch: in a folder that appears later', { tags: ['slow'] }, async () => {
  rmSync(folder, { recursive: true })
  startWatching('cert')
  expect(warnings).toBe(1)
  mkdirSync(folder)
  writeFileSync(join(folder, 'cert'), 'one')
  await until(() => told === 1)
  writeFileSync(join(folder, 'cert'), 'another')
  await until(() => told === 2)
})

test('a change before the first look is reported, if nothing else reports it', async () => {
  rmSync(folder, { recursive: true })
  startWatching('cert')
  mkdirSync(folder)
  await until(() => told === 1)
})

test('a file written in place is reported once it is complete, a rename at once', async () => {
  const file = join(folder, 'table')
  const told: string[] = []
  watching = watchFiles([file], logger, () => told.push(readFileSync(file, 'utf8')))
  const parts = ['a', 'b', 'c', 'd']
  for (const part of parts) {
    appendFileSync(file, part)
    await new Promise(resolve => setTimeout(resolve, 300))
  }
  await until(() => told.length > 0)
  expect(told).toEqual(['abcd'])
  for (const part of parts) {
    const before = told.length
    writeFileSync(`${file}.new`, part)
    renameSync(`${file}.new`, file)
    await until(() => told.length > before)
    expect(told.at(-1)).toBe(part)
  }
})

test.each<[how: string, go: (file: string) => void, first: string[]]>([
  ['removed', file => rmSync(file), ['old', 'none']],
  ['moved away', file => renameSync(file, `${file}~`), ['old']],
])('a file that was %s and is then written in place is reported once it is complete', async (_how, go, first) => {
  const file = join(folder, 'table')
  writeFileSync(file, 'old')
  const found: string[] = []
  watching = watchFiles([file], logger, () => found.push(existsSync(file) ? readFileSync(file, 'utf8') : 'none'))
  await until(() => found.length > 0)
  go(file)
  await until(() => found.at(-1) === first.at(-1))
  for (const part of ['a', 'b', 'c', 'd']) {
    appendFileSync(file, part)
    await new Promise(resolve => setTimeout(resolve, 300))
  }
  await until(() => found.at(-1) !== first.at(-1))
  expect([...new Set(found)]).toEqual([...first, 'abcd'])
})

test('nothing is reported once it is closed', async () => {
  writeFileSync(join(folder, 'cert'), 'one')
  startWatching('cert')
  writeFileSync(join(folder, 'cert'), 'two')
  watching?.close()
  await new Promise(resolve => setTimeout(resolve, 300))
  expect(told).toBe(0)
})

test('a log that grows beside the files is not reported, but a change of theirs is', async () => {
  writeFileSync(join(folder, 'cert'), 'one')
  startWatching('cert')
  let toldBefore = -1
  let sinceMs = 0
  const logs = async () => {
    appendFileSync(join(folder, 'log'), 'a line\n')
    if (told !== toldBefore) sinceMs = performance.now()
    toldBefore = told
    expect(performance.now() - sinceMs).toBeGreaterThan(1000)
  }
  await eventually(logs)
  utimesSync(join(folder, 'cert'), 1, 1)
  await until(() => told > toldBefore)
})
