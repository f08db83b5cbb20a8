/** What must hold for every input. */
import { deepStrictEqual } from 'node:assert'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { HeaderList } from '../../protocol/exchange.ts'

/** An invariant does not hold. */
export class Broken extends Error {
  override readonly name = 'Broken'
}

export function holds(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Broken(what)
}

export function same(actual: unknown, expected: unknown, what: string): void {
  try {
    deepStrictEqual(actual, expected)
  } catch (error) {
    throw new Broken(`${what}: ${(error as Error).message}`)
  }
}

/** Returns the result of `work`, or the error of our table that it throws. Any other error passes through, as a find. */
export function ourErrorOr<T>(work: () => T): T | SallyportError {
  try {
    return work()
  } catch (error) {
    if (error instanceof SallyportError && error.reason !== 'internal') return error
    throw error
  }
}

const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/
const VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
const ONE_HOP = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  'host',
]

/** Names are lower-case tokens, values are trimmed and printable, and no field is hop-by-hop. */
export function canonicalHeaders(headers: HeaderList): void {
  holds(headers.length % 2 === 0, 'a header list has pairs')
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    holds(NAME.test(name), `a canonical field name: ${JSON.stringify(name)}`)
    holds(VALUE.test(headers[i + 1]!), `a canonical value of ${name}: ${JSON.stringify(headers[i + 1])}`)
    holds(!ONE_HOP.includes(name), `${name} stays on its hop`)
  }
}

/** The same for those of a request, which may have `te: trailers`. */
export function canonicalRequestHeaders(headers: HeaderList): void {
  const te = headers.filter((_, i, all) => all[i - 1] === 'te' && i % 2 === 1)
  holds(
    te.every(value => value === 'trailers'),
    'te is trailers',
  )
  canonicalHeaders(headers.filter((_, i, all) => all[i - (i % 2)] !== 'te'))
}
