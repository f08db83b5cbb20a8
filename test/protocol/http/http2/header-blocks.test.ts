import { expect, test } from 'vitest'
import { liveBytes } from '../../../../load-tests/lib/garbage.ts'
import { FLAG } from '../../../../protocol/http/http2/frames.ts'
import { HeaderBlocks } from '../../../../protocol/http/http2/header-blocks.ts'

const GET = Uint8Array.of(0x82)

test('half a block in parts of one byte costs no more than its frames', async () => {
  const COUNT = 20
  const PARTS = 6_000
  const before = await liveBytes()
  const all = Array.from({ length: COUNT }, () => new HeaderBlocks(64 * 1024, 2 * PARTS))
  for (const blocks of all) {
    blocks.begin(0, 1, GET)
    for (let i = 2; i < PARTS; i++) blocks.continue(0, 1, GET)
  }
  expect(((await liveBytes()) - before) / COUNT).toBeLessThan(10 * PARTS)
  for (const blocks of all) expect(blocks.continue(FLAG.endHeaders, 1, GET)!.fields).toHaveLength(2 * PARTS)
})
