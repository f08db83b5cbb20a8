import { expect, test } from 'vitest'
import { newPrivateKey } from '../../../protocol/sealing/hpke.ts'
import { OpeningKey } from '../../../protocol/sealing/sealed-webhook.ts'

test.each(['', 'x', `${'A'.repeat(43)}.`])('%j says nothing by which a webhook could be opened', enc => {
  expect(() => new OpeningKey(newPrivateKey()).opener(enc)).toThrow('it says nothing by which it could be opened')
})
