import { expect, test } from 'vitest'
import { PeerSettings } from '../../../../protocol/http/http2/settings.ts'
import { setting } from '../../../support/http2-frames.ts'

test('each size of the compression table in one frame is passed on, since the smallest empties the table', () => {
  const sizes: number[] = []
  const payload = Buffer.concat([0, 4096].map(bytes => setting('headerTableSize', bytes)))
  new PeerSettings(false).apply(payload, bytes => sizes.push(bytes))
  expect(sizes).toEqual([0, 4096])
})
