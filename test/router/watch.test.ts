/** Overlapping reads of a routes file. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeEach, expect, it, vi } from 'vitest'
import type { RouteTable } from '../../router/index.ts'
import { watchRoutes } from '../../router/watch.ts'
import { eventually } from '../support/until.ts'

/** Each read, as it began; the test says when it ends, and with what. */
const { reads } = vi.hoisted(() => ({ reads: [] as ((text: string) => void)[] }))
vi.mock('../../protocol/base/plain-file.ts', async original => ({
  ...(await original<typeof import('../../protocol/base/plain-file.ts')>()),
  readPlain: () => new Promise<string>(resolve => reads.push(resolve)),
}))

const folder = mkdtempSync(join(tmpdir(), 'sallyport-watch-'))
const file = join(folder, 'routes.yaml')
beforeEach(() => {
  reads.length = 0
  writeFileSync(file, '')
})
afterAll(() => rmSync(folder, { recursive: true }))

function watch(taken: string[]) {
  const parse = (text: string): RouteTable => ({ routes: [{ name: text, match: {}, target: 'http://a' }] })
  return watchRoutes('', { routes: [] }, { file, parse, onTable: table => taken.push(table.routes[0]!.name) })
}

async function begun(count: number): Promise<void> {
  await eventually(() => expect(reads.length).toBeGreaterThanOrEqual(count))
}

it('an older read never ends after a newer one', async () => {
  const taken: string[] = []
  const watcher = watch(taken)
  const both = [watcher.reload(), watcher.reload()]
  await begun(1)
  await new Promise(resolve => setImmediate(resolve))
  // Those in progress end in the wrong order.
  const early = reads.splice(0)
  for (const [i, read] of [...early.entries()].reverse()) read(`${i}`)
  if (early.length === 1) {
    await begun(1)
    reads[0]!('1')
  }
  await Promise.all(both)
  expect(taken).toEqual(['0', '1'])
  watcher.close()
})

it('what is read after the end is ignored', async () => {
  const taken: string[] = []
  const watcher = watch(taken)
  const last = watcher.reload()
  await begun(1)
  watcher.close()
  reads[0]!('late')
  await last
  expect(taken).toEqual([])
})
