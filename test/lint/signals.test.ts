import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'

/** Each gives it signals that live no longer than one exchange or one command. */
const EXEMPT =
  /^(?:server\/access\/forward-auth|client\/(?:diagnose|throughput|quiet-way)|cli\/demo\/(?:index|run-checks))\.ts$/

test('no signal of a component is given to `AbortSignal.any`: on Node 22, it would keep something of each call', () => {
  const sources = [...checkout()].filter(([file]) =>
    /^(?:server|client|router|protocol|tracing|cli|admin)\/.*\.ts$/.test(file),
  )
  const using = sources.filter(([, text]) => text.includes('AbortSignal.any('))
  expect(using.length).toBeGreaterThan(0)
  expect(using.map(([file]) => file).filter(file => !EXEMPT.test(file))).toEqual([])
})
