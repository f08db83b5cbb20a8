import { expect, it } from 'vitest'
import * as certs from '../../../certs/names.ts'
import { isRuntimeName } from '../../../protocol/base/names.ts'
import { parseControl } from '../../../protocol/wire/control.ts'
import { readClaims } from '../../../server/auth/claims.ts'

const GOOD = ['a', 'a-b', '0', 'x'.repeat(63)]
const BAD = ['', 'A', '-a', 'a-', 'a.b', 'a_b', 'a b', 'a\n', 'x'.repeat(64), 'demo/push', '\u0430']

/** Everywhere that a runtime's name comes in. */
const ENTRIES: readonly [string, (name: string) => unknown][] = [
  ['a certificate that is made', certs.runtimeToUri],
  [
    'a token',
    runtime =>
      readClaims(
        { runtime, exp: 2, aud: 'a' },
        { issuer: undefined, audience: 'a', runtimeClaim: 'runtime', clockToleranceS: 0, reserved: [] },
        0,
      ),
  ],
  ['welcome', runtime => parseControl(JSON.stringify({ ...WELCOME, runtime }))],
]
const WELCOME = { type: 'welcome', minor: 0, software: 'x', session: 's', replica: 'r', epoch: 1 }

it('is lower case, at most 63 characters, with no dash at either end', () => {
  for (const name of GOOD) expect(isRuntimeName(name), name).toBe(true)
  for (const name of BAD) expect(isRuntimeName(name), name).toBe(false)
})

it.each(ENTRIES)('%s has the same rule', (_, enter) => {
  for (const name of GOOD) expect(() => enter(name), name).not.toThrow()
  for (const name of BAD) expect(() => enter(name), name).toThrow(/runtime/)
})
