/** HTTP/2 as bytes on a socket, for what a library would tidy up (RFC 9113 section 4.1). */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
export const TYPE = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
}

export function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = type
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** One entry of a SETTINGS frame (RFC 9113 section 6.5.1). */
export function setting(name: 'maxConcurrentStreams' | 'initialWindowSize', value: number): Buffer {
  return Buffer.concat([Buffer.from([0, name === 'maxConcurrentStreams' ? 3 : 4]), uint32(value)])
}

/** A field as HPACK literal without indexing. */
export function field(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0]), length(name), Buffer.from(name), length(value), Buffer.from(value)])
}

export function length(text: string): Buffer {
  if (text.length < 127) return Buffer.from([text.length])
  const bytes = [127]
  let rest = text.length - 127
  for (; rest >= 128; rest >>= 7) bytes.push((rest & 127) | 128)
  return Buffer.from([...bytes, rest])
}

/** The field block of a request. */
export function head(method = 'GET', ...more: [string, string][]): Buffer {
  const pseudo: [string, string][] = [
    [':method', method],
    [':scheme', 'http'],
    [':path', '/attack'],
    [':authority', 'a'],
  ]
  return Buffer.concat([...pseudo, ...more].map(([name, value]) => field(name, value)))
}

export const END_STREAM = 1
export const END_HEADERS = 4

export interface Frame {
  readonly type: number
  readonly flags: number
  readonly stream: number
  readonly payload: Buffer
}

/** The whole frames that `bytes` begins with. */
export function framesOf(bytes: Buffer): Frame[] {
  const frames: Frame[] = []
  for (let at = 0; bytes.length - at >= 9; ) {
    const length = bytes.readUIntBE(at, 3)
    if (bytes.length - at < 9 + length) break
    const payload = bytes.subarray(at + 9, at + 9 + length)
    frames.push({ type: bytes[at + 3]!, flags: bytes[at + 4]!, stream: bytes.readUInt32BE(at + 5), payload })
    at += 9 + length
  }
  return frames
}
