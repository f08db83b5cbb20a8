import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { watchText } from '../../../cli/service/watch.ts'
import type { FilesWatch } from '../../../protocol/base/watch-files.ts'

let folder: string
let watching: Pick<FilesWatch, 'close'> | undefined
let seen: string[]
let gone: unknown[]
let wake: () => void

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-watch-'))
  seen = []
  gone = []
  wake = () => {}
})
afterEach(() => {
  watching?.close()
  rmSync(folder, { recursive: true })
})

function startWatching(path: string, current: string | undefined): void {
  watching = watchText(
    path,
    current,
    text => {
      seen.push(text)
      wake()
    },
    error => {
      gone.push(error)
      wake()
    },
  )
}

/** Resolves when one more text, or the loss of the file, has been reported. */
function nextChange(): Promise<void> {
  return new Promise(resolve => {
    wake = resolve
  })
}

test('a new file that is renamed over the old one', async () => {
  const path = join(folder, 'token')
  writeFileSync(path, 'one')
  startWatching(path, 'one')
  const next = nextChange()
  writeFileSync(join(folder, 'token.new'), 'two')
  renameSync(join(folder, 'token.new'), path)
  await next
  expect(seen).toEqual(['two'])
})

test('a file that does not exist yet', async () => {
  const path = join(folder, 'token')
  startWatching(path, undefined)
  const next = nextChange()
  writeFileSync(path, 'one')
  await next
  expect(seen).toEqual(['one'])
})

test('the links that Kubernetes swaps', async () => {
  const path = join(folder, 'token')
  for (const [name, text] of [
    ['..1', 'one'],
    ['..2', 'two'],
  ]) {
    mkdirSync(join(folder, name!))
    writeFileSync(join(folder, name!, 'token'), text!)
  }
  symlinkSync('..1', join(folder, '..data'))
  symlinkSync('..data/token', path)
  startWatching(path, 'one')
  const next = nextChange()
  symlinkSync('..2', join(folder, '..data.new'))
  renameSync(join(folder, '..data.new'), join(folder, '..data'))
  await next
  expect(seen).toEqual(['two'])
})

test('a file that disappears is reported once, and its return is noticed', async () => {
  const path = join(folder, 'token')
  writeFileSync(path, 'one')
  startWatching(path, 'one')
  const lost = nextChange()
  unlinkSync(path)
  await lost
  expect(gone).toHaveLength(1)
  const back = nextChange()
  writeFileSync(path, 'two')
  await back
  expect(seen).toEqual(['two'])
  expect(gone).toHaveLength(1)
})
