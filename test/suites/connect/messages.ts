/** The two messages between the runner and a server under test: Protobuf after four bytes of length, by hand. */

/** What the runner wants of a server (`ServerCompatRequest`). */
export interface ServerWish {
  readonly protocol: number
  /** 1: HTTP/1.1, 2: HTTP/2. */
  readonly httpVersion: number
  readonly messageReceiveLimit: number
  /** Certificate and key (PEM) if TLS is wanted. */
  readonly tls: { readonly cert: string; readonly key: string } | undefined
}

type Fields = Map<number, number | Buffer>

export function readWish(message: Buffer): ServerWish {
  const fields = read(message)
  const number = (id: number) => (fields.get(id) as number | undefined) ?? 0
  const pair = fields.get(4) === 1 ? read(fields.get(7) as Buffer) : undefined
  const tls = pair && { cert: String(pair.get(1)), key: String(pair.get(2)) }
  return { protocol: number(1), httpVersion: number(2), messageReceiveLimit: number(6), tls }
}

/** The same request without TLS. */
export function writePlainWish({ protocol, httpVersion, messageReceiveLimit }: ServerWish): Buffer {
  return delimited(Buffer.concat([varint(1, protocol), varint(2, httpVersion), varint(6, messageReceiveLimit)]))
}

/** Where a server listens, of a `ServerCompatResponse`. */
export function readPort(message: Buffer): number {
  return read(message).get(2) as number
}

export function writePlace(port: number, cert: string | undefined): Buffer {
  const place = [text(1, '127.0.0.1'), varint(2, port)]
  return delimited(Buffer.concat(cert === undefined ? place : [...place, text(3, cert)]))
}

/** The first message of a stream. */
export async function readMessage(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  let bytes = Buffer.alloc(0)
  for await (const chunk of stream) {
    bytes = Buffer.concat([bytes, chunk])
    if (bytes.length >= 4 && bytes.length >= 4 + bytes.readUInt32BE(0))
      return bytes.subarray(4, 4 + bytes.readUInt32BE(0))
  }
  throw new Error('the stream ended before a whole message')
}

function delimited(message: Buffer): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(message.length)
  return Buffer.concat([length, message])
}

function digits(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...digits(Math.floor(value / 0x80))]
}

const varint = (id: number, value: number) => Buffer.from([...digits(id << 3), ...digits(value)])
const text = (id: number, value: string) =>
  Buffer.from([...digits((id << 3) | 2), ...digits(value.length), ...Buffer.from(value)])

function read(message: Buffer): Fields {
  const fields: Fields = new Map()
  let at = 0
  const next = () => {
    let value = 0
    for (let scale = 1; ; scale *= 0x80) {
      const byte = message[at++]!
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
  }
  while (at < message.length) {
    const tag = next()
    const value = next()
    if ((tag & 7) === 0) {
      fields.set(tag >> 3, value)
    } else {
      fields.set(tag >> 3, message.subarray(at, at + value))
      at += value
    }
  }
  return fields
}
