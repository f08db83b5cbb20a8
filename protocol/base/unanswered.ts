/**
 * The addresses of a name that Node gave up too early. It gives each but the last half a second, which a first packet that is lost or a
 * path by satellite takes. Where the last one is of a family that has no path, nothing would be left.
 */
import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'

/** Of `error`, with which connecting to a name of several addresses ended: those of which nothing is known. */
export function unanswered(error: Error): LookupAddress[] {
  const errors: (NodeJS.ErrnoException & { address?: string })[] = error instanceof AggregateError ? error.errors : []
  return errors
    .filter(({ code }) => code === 'ETIMEDOUT')
    .map(({ address = '' }) => ({ address, family: isIP(address) }))
    .filter(({ family }) => family !== 0)
}

/** A lookup that leads to these, whatever the name. */
export function leadingTo(addresses: readonly LookupAddress[]): LookupFunction {
  return (_name, { all }, answer) => {
    const [first] = addresses
    if (all) answer(null, [...addresses])
    else answer(null, first!.address, first!.family)
  }
}
