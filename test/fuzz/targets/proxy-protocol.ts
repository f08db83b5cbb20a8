import { isIP } from 'node:net'
import { canonicalAddress } from '../../../protocol/base/address.ts'
import { readProxyHeader } from '../../../server/socket/proxy-protocol.ts'
import { holds, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')

function anyHeader(random: Random): Buffer {
  const body = random.bytes(random.pick([0, 11, 12, 35, 36, 60, 216, 2048, 2049]))
  const head = Buffer.from([random.pick([0x21, 0x20, 0x22, 0x11]), random.pick([0x11, 0x21, 0x12, 0x31, 0]), 0, 0])
  head.writeUInt16BE(random.oneIn(20) ? random.size(65_535) : body.length, 2)
  return Buffer.concat([SIGNATURE, head, body, random.bytes(random.size(20))])
}

export const proxyProtocol: FuzzTarget = {
  name: 'proxy-protocol',

  generate(random) {
    const header = anyHeader(random)
    return random.oneIn(2) ? header : mutate(header, random)
  },

  execute(input) {
    const whole = readProxyHeader(input)
    if (whole.done && 'length' in whole) {
      holds(whole.length >= 16 && whole.length <= input.length, 'it ends within the bytes')
      const { address } = whole
      if (address !== undefined) {
        holds(isIP(address) !== 0, `an address: ${address}`)
        same(canonicalAddress(address), address, 'in canonical form')
      }
    }
    for (let length = 0; length < input.length; length++) {
      const part = readProxyHeader(input.subarray(0, length))
      if (part.done) same(part, whole, 'what is once known stays')
    }
  },
}
