import { expect, test } from 'vitest'
import { suggestion } from '../../cli/suggest.ts'

const FLAGS = ['domain', 'public.listen', 'public.tls.cert', 'public.tls.key', 'control.tls.cert', 'ca', 'ca-only']

test.each([
  ['domian', 'domain'],
  ['public.tls.crt', 'public.tls.cert'],
  ['publik.listen', 'public.listen'],
  ['ca-olny', 'ca-only'],
  ['c', 'ca'],
])('%s is near to %s', (word, expected) => {
  expect(suggestion(word, FLAGS, '--')).toBe(`; did you mean --${expected}?`)
})

test.each(['verbose', 'xyz', ''])('nothing is close to %j', word => {
  expect(suggestion(word, ['domain', 'public.listen'])).toBe('')
})
