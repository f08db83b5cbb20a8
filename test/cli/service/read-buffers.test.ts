import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const READ_BUFFERS = fileURLToPath(new URL('../../../cli/service/read-buffers.ts', import.meta.url))

/** Creates garbage that V8 collects by itself, while live memory grows inside and outside the heap. */
const PROGRAM = `
  import { collectReadBuffers } from ${JSON.stringify(READ_BUFFERS)}
  collectReadBuffers()
  const kept = []
  let turns = 600
  const turn = () => {
    for (let i = 0; i < 1000; i++) new Array(1000).fill(i)
    kept.push(new Array(500).fill(0), Buffer.allocUnsafeSlow(20_000))
    if (--turns > 0) setTimeout(turn, 5)
  }
  turn()
`

test('V8 has collected: it does not collect again at once, which would age live objects', {
  tags: ['slow'],
}, async () => {
  const args = ['--trace-gc', '--input-type=module', '--eval', PROGRAM]
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 64 * 1024 * 1024 })
  const collections = stdout.split('\n').filter(line => line.includes('Scavenge'))
  const own = collections.filter(line => line.includes('allocation failure'))
  expect(own.length).toBeGreaterThan(5)
  expect(collections.filter(line => line.includes('testing'))).toEqual([])
})
