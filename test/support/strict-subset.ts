/**
 * A regular expression has no keys of its own, so this vitest's `toMatchObject` takes it for a part of anything. Here it
 * equals only its like, wherever it comes from; `test/lint/` finds those that stand there as literals.
 */
import { expect } from 'vitest'

expect.addEqualityTesters([
  (actual, expected) => {
    if (!(expected instanceof RegExp)) return undefined
    return actual instanceof RegExp && String(actual) === String(expected)
  },
])
