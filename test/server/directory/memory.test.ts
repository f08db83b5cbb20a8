import { expect, test, vi } from 'vitest'
import { MemoryDirectory } from '../../../server/directory/memory.ts'

const MOST = 100_000
const enter = (directory: MemoryDirectory, runtime: string) =>
  directory.ready({ runtime, instance: 'one', lastEpoch: 0 })

test('a server on its own with very many runtimes looks at none of the others to add one, and forgets only who has left', async () => {
  const directory = new MemoryDirectory()
  for (let i = 0; i < MOST; i++) await enter(directory, `r${i}`)
  const looks = vi.spyOn(Map.prototype, 'values')
  await enter(directory, 'live')
  const looked = looks.mock.calls.length
  looks.mockRestore()
  expect([looked < 100, directory.stats().known]).toEqual([true, MOST + 1])
  for (const name of ['r7', 'r3']) directory.gone(name, 'one')
  await enter(directory, 'next')
  const isKnown = (name: string) => directory.find(name) !== undefined
  expect(['r0', 'r3', 'r7', 'live', 'next'].map(isKnown)).toEqual([true, true, false, true, true])
})
