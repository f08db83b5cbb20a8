import { MAX_CLIENT_HELLO_BYTES, readServerName } from '../../../server/socket/client-hello.ts'
import { holds, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const list8 = (bytes: Buffer) => Buffer.concat([Buffer.from([bytes.length & 0xff]), bytes])
const list16 = (bytes: Buffer) => Buffer.concat([uint16(bytes.length), bytes])

function uint16(value: number): Buffer {
  return Buffer.from([(value >>> 8) & 0xff, value & 0xff])
}

function serverName(random: Random): Buffer {
  const name = Buffer.from(random.pick(['connect.test', 'DEMO.test', 'a', '', 'x'.repeat(300), 'a\0b']), 'latin1')
  return list16(Buffer.concat([Buffer.from([random.oneIn(10) ? 1 : 0]), list16(name)]))
}

function anyHello(random: Random): Buffer {
  const extensions: Buffer[] = []
  for (let left = random.int(5); left > 0; left--) {
    const isName = random.oneIn(2)
    extensions.push(uint16(isName ? 0 : random.pick([10, 16, 43, 51, 0xaaaa])))
    extensions.push(list16(isName ? serverName(random) : random.bytes(random.size(600))))
  }
  const body = Buffer.concat([
    ...[uint16(0x0303), random.bytes(32), list8(random.bytes(random.pick([0, 32]))), list16(random.bytes(8))],
    ...[list8(Buffer.from([0])), list16(Buffer.concat(extensions))],
  ])
  const handshake = Buffer.concat([Buffer.from([1, 0]), list16(body)])
  const records: Buffer[] = []
  for (let at = 0; at < handshake.length; ) {
    const end = random.oneIn(3) ? at + random.between(1, 200) : handshake.length
    records.push(Buffer.from([22, 3, 1]), list16(handshake.subarray(at, end)))
    at = end
  }
  return Buffer.concat(records)
}

export const clientHello: FuzzTarget = {
  name: 'client-hello',

  generate(random) {
    const hello = anyHello(random)
    return random.oneIn(3) ? hello : mutate(hello, random)
  },

  execute(input) {
    const whole = readServerName(input)
    if (input.length >= MAX_CLIENT_HELLO_BYTES) holds(whole.done, 'an end is found within the bound')
    if (whole.done && whole.name !== undefined) holds(whole.name === whole.name.toLowerCase(), 'in lower case')
    const step = Math.max(1, Math.floor(input.length / 100))
    for (let length = 0; length < input.length; length += step) {
      const part = readServerName(input.subarray(0, length))
      if (part.done) same(part, whole, 'what is once known stays')
    }
  },
}
