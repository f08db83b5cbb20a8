import { decodePreamble, type Preamble, preambleEnd, preambleText } from '../../../protocol/wire/preamble.ts'
import { varintText } from '../../../protocol/wire/varint.ts'
import { holds, ourErrorOr, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const ADDRESSES = ['192.0.2.1', '::1', '2001:db8::1', '::ffff:192.0.2.1', 'fe80::1%eth0', '1.2.3', '']
const NUMBERS = [0, 1, 63, 64, 16_383, 16_384, 1_073_741_823, 1_073_741_824, Number.MAX_SAFE_INTEGER]

export function anyPreamble(random: Random): Preamble {
  const polite = random.oneIn(2)
  return {
    kind: random.pick(polite ? [1, 2] : [1, 1, 1, 2, 3]),
    exchangeId: random.bytes(16).toString('latin1'),
    attempt: random.pick(NUMBERS),
    runtime: polite ? 'demo' : random.pick(['demo', 'a', 'a-b', `${'x'.repeat(63)}`, 'A', '-a', '', 'a.b']),
    epoch: random.pick(NUMBERS),
    timeLeftMs: random.pick(NUMBERS),
    callerAddress: polite ? '::1' : random.pick(ADDRESSES),
    callerScheme: random.pick(['http', 'https']),
    callerHost:
      polite || random.oneIn(2) ? undefined : random.pick(['a.example', 'a:1', '[::1]:443', 'x'.repeat(300), '']),
    hops: random.pick([0, 1, 2]),
    bodyBytes: random.pick(polite ? [-1, 0, 5] : [-1, ...NUMBERS]),
  }
}

export function preambleBytes(random: Random): Buffer {
  const text = preambleText(anyPreamble(random))
  return Buffer.from(random.oneIn(4) ? withEntry(text, random) : text, 'latin1')
}

/** With one more entry, which the length does not include unless it is one byte long. */
function withEntry(text: string, random: Random): string {
  const entry = varintText(random.size(40)) + varintText(3) + random.bytes(3).toString('latin1')
  return text + entry
}

function decode(bytes: Buffer): Preamble | undefined {
  const end = preambleEnd(bytes, 0, bytes.length)
  return end < 0 ? undefined : decodePreamble(bytes, 0, end)
}

export const preamble: FuzzTarget = {
  name: 'preamble',

  generate(random) {
    const bytes = preambleBytes(random)
    return random.oneIn(3) ? bytes : mutate(bytes, random)
  },

  execute(input) {
    const first = ourErrorOr(() => decode(input))
    let end = -1
    for (let length = 0; length <= input.length && end < 0; length++) {
      const found = ourErrorOr(() => preambleEnd(input, 0, length))
      if (typeof found !== 'number') return
      end = found
    }
    if (first === undefined || first instanceof Error) return
    holds(end > 0 && end <= input.length, 'its end is found at every cut')
    const again = decode(Buffer.from(preambleText(first), 'latin1'))
    same({ ...again }, { ...first }, 'decode(encode(x)) = x')
  },
}
