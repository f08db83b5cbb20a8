import { isIP } from 'node:net'
import { canonicalAddress, cidrsContain, parseCidrs } from '../../../protocol/base/address.ts'
import type { HttpRequest } from '../../../protocol/exchange.ts'
import { appendForwarded, resolveCaller } from '../../../protocol/http/forwarded.ts'
import { isAuthority, isClaim, isFieldValue, isForwardedName } from '../../../protocol/http/headers.ts'
import { holds, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const TRUSTED = parseCidrs(['10.0.0.0/8', 'fd00::/8', '::ffff:172.16.0.0/108'])
const PEERS = ['10.0.0.1', '192.0.2.9', 'fd00::1', '172.16.1.1', '']
const NAMES = [
  ...[
    'x-forwarded-for',
    'x-forwarded-for',
    'x-forwarded-proto',
    'x-forwarded-host',
    'x-real-ip',
    'forwarded',
    'x-request-id',
  ],
  ...[
    'x_forwarded_for',
    'x.forwarded.for',
    'x-forwarded',
    'sallyport-error',
    'x-sallyport-x',
    'accept',
    'x_request_id',
  ],
]
const WORDS = [
  ...[
    '10.0.0.2',
    '192.0.2.1',
    '::1',
    '[2001:db8::1]:443',
    '1.2.3.4:567',
    'unknown',
    '',
    ' ',
    ',',
    'fe80::1%eth0',
    '::ffff:1.2.3.4',
  ],
  ...[
    'https',
    'http',
    'wss',
    'ftp',
    'demo.test',
    'a@b',
    'demo.test:99',
    '"',
    '\\',
    '010.0.0.1',
    '1.2.3',
    '2001:db8:0:0:0:0:0:1',
    'r-1',
  ],
]

/** Names and values alternate, one per line, below the number of the peer. */
export const caller: FuzzTarget = {
  name: 'caller',

  generate(random) {
    const lines = Array.from({ length: random.int(5) }, () => `${random.pick(NAMES)}\n${value(random)}`)
    const text = Buffer.from(`${lines.join('\n')}\n`, 'latin1')
    return Buffer.concat([random.bytes(1), random.oneIn(2) ? text : mutate(text, random, WORDS)])
  },

  execute(input) {
    const lines = input.toString('latin1', 1).split('\n')
    const headers: string[] = []
    for (let i = 0; i + 1 < lines.length; i += 2) {
      const text = lines[i + 1]!
      if (/^[a-z0-9._-]+$/.test(lines[i]!) && isFieldValue(text)) headers.push(lines[i]!, text)
    }
    const peerAddress = PEERS[(input[0] ?? 0) % PEERS.length]!
    const request = { headers: [...headers], peerAddress, authority: 'demo.test', encrypted: true } as HttpRequest
    resolveCaller(request, TRUSTED)
    const { address, scheme, host } = request.caller!
    holds(address === '' || canonicalAddress(address) === address, `a canonical address: ${address}`)
    holds((scheme === 'http' || scheme === 'https') && isAuthority(host), 'a scheme and a host')
    if (!cidrsContain(TRUSTED, peerAddress)) {
      same(request.caller, { address: peerAddress, scheme: 'https', host: 'demo.test' }, 'a stranger is not believed')
      holds(!headers.includes(request.requestId), 'nor his request id')
    }
    const ids = request.headers.filter((_, i, all) => i % 2 === 1 && all[i - 1] === 'x-request-id')
    same(ids, [request.requestId], 'one request id')
    const isForged = cidrsContain(TRUSTED, peerAddress) ? isForwardedName : isClaim
    holds(!request.headers.some((name, i) => i % 2 === 0 && isForged(name)), 'nothing forged is left')
    appendForwarded(request.headers, request.caller!)
    for (const text of request.headers) holds(isFieldValue(text), 'what is told can be sent')
    for (const text of lines) checkAddress(text)
  },
}

function value(random: Random): string {
  return Array.from({ length: random.between(1, 4) }, () => random.pick(WORDS)).join(random.pick([',', ', ', '']))
}

function checkAddress(text: string): void {
  const canonical = canonicalAddress(text)
  if (canonical === '') return
  holds(isIP(canonical) !== 0, 'an address')
  same(canonicalAddress(canonical), canonical, 'in canonical form')
  holds(cidrsContain(parseCidrs([canonical]), text), 'it stands in its own network')
}
