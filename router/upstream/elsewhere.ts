/** Names that callers choose must resolve to other machines, so their addresses are checked before they are dialled (R4). */
import type { LookupAddress } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { cidrsContain, parseCidrs } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'

/**
 * This machine, and link-local addresses, where clouds serve credentials (169.254.169.254, fd00:ec2::254). Also in the forms of
 * IPv6 that lead to these of IPv4: compatible, NAT64 and 6to4.
 */
const LOCAL_ADDRESSES = parseCidrs([
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '::/96', 'fe80::/10', 'fd00:ec2::254/128'],
  ...['64:ff9b::/104', '64:ff9b::7f00:0/104', '64:ff9b::a9fe:0/112', '2002::/24', '2002:7f00::/24', '2002:a9fe::/32'],
])

/** `lookup` without addresses of this machine. It is an error if a name has no others. */
export function elsewhere(lookup: LookupFunction): LookupFunction {
  return (name, options, answer) => {
    const guard = guardWith(error => answer(error as Error, ''))
    const onAnswer = guard((...[error, found, family]: Parameters<typeof answer>) => {
      if (error !== null) return answer(error, found, family)
      const all: LookupAddress[] = Array.isArray(found) ? found : [{ address: found, family: family ?? 0 }]
      const others = all.filter(({ address }) => !cidrsContain(LOCAL_ADDRESSES, address))
      const [first] = others
      if (first === undefined) answer(new SallyportError('upstream-name', `${name} resolves to this machine`), '')
      else if (options.all === true) answer(null, others)
      else answer(null, first.address, first.family)
    })
    lookup(name, options, onAnswer)
  }
}
