/**
 * Finds the addresses of a name that Node gave up on too early. Node allows each address but the last half a second, which a
 * lost first packet or a satellite link already takes. If the last address is of a family without a route, none would be left.
 */
import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'

/** From the error of connecting to a name with several addresses: those that may still answer. */
export function unanswered(error: Error): LookupAddress[] {
  const errors: (NodeJS.ErrnoException & { address?: string })[] = error instanceof AggregateError ? error.errors : []
  return errors
    .filter(({ code }) => code === 'ETIMEDOUT')
    .map(({ address = '' }) => ({ address, family: isIP(address) }))
    .filter(({ family }) => family !== 0)
}

/** A lookup that returns these addresses for any name. */
export function leadingTo(addresses: readonly LookupAddress[]): LookupFunction {
  return (_name, { all }, answer) => {
    const [first] = addresses
    if (all) answer(null, [...addresses])
    else answer(null, first!.address, first!.family)
  }
}
