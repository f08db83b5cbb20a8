/** HTTP/2 as bytes on a socket, for what a library would tidy up (RFC 9113 section 4.1). */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
export const TYPE = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
  /** Which nobody knows. */
  unknown: 99,
}
export const END_STREAM = 1
export const ACK = 1
export const END_HEADERS = 4
export const PADDED = 8
export const PRIORITY = 0x20

/** The error codes, in the order of their numbers (RFC 9113 section 7). */
export const ERRORS = [
  'NO_ERROR',
  'PROTOCOL_ERROR',
  'INTERNAL_ERROR',
  'FLOW_CONTROL_ERROR',
  'SETTINGS_TIMEOUT',
  'STREAM_CLOSED',
  'FRAME_SIZE_ERROR',
  'REFUSED_STREAM',
  'CANCEL',
  'COMPRESSION_ERROR',
  'CONNECT_ERROR',
  'ENHANCE_YOUR_CALM',
  'INADEQUATE_SECURITY',
  'HTTP_1_1_REQUIRED',
] as const

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

export const SETTING = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
  enableConnect: 8,
} as const

/** One entry of a SETTINGS frame (RFC 9113 section 6.5.1). */
export function setting(name: keyof typeof SETTING, value: number): Buffer {
  return Buffer.concat([Buffer.from([0, SETTING[name]]), uint32(value)])
}

/** A field as HPACK literal without indexing, of these bytes, whatever they are. */
export function field(name: string, value: string): Buffer {
  const [a, b] = [Buffer.from(name, 'latin1'), Buffer.from(value, 'latin1')]
  return Buffer.concat([Buffer.from([0]), length(name), a, length(value), b])
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

/** The head of a WebSocket (RFC 8441). */
export const WEBSOCKET_HEAD = head('CONNECT', [':protocol', 'websocket'], ['sec-websocket-version', '13'])

export type Fields = readonly (readonly [name: string, value: string])[]

/** Fields that make a head or trailers malformed (RFC 9113 sections 8.2.1 and 8.2.2). */
export const BAD_FIELDS: Readonly<Record<string, Fields[number]>> = {
  'a name with a space': ['a b', '1'],
  'a name with upper case': ['aB', '1'],
  'a name with a colon': ['a:b', '1'],
  'a name with CR': ['a\r', '1'],
  'a name with LF': ['a\nb', '1'],
  'a name with NUL': ['a\0', '1'],
  'a name with a control byte': ['\x01', '1'],
  'a name with DEL': ['\x7f', '1'],
  'a name with a byte above 0x7f': ['\xe9', '1'],
  'no name': ['', '1'],
  'a value with CR': ['x', 'a\rb'],
  'a value with LF': ['x', 'a\nb'],
  'a value with NUL': ['x', 'a\0b'],
  'a value with a line of its own': ['x', 'a\r\nx: y'],
  'a value with a space before it': ['x', ' a'],
  'a value with a space behind it': ['x', 'a '],
  'a value with a tab before it': ['x', '\ta'],
  'a value with a tab behind it': ['x', 'a\t'],
  connection: ['connection', 'close'],
  'keep-alive': ['keep-alive', '1'],
  'proxy-connection': ['proxy-connection', 'close'],
  'transfer-encoding': ['transfer-encoding', 'chunked'],
  upgrade: ['upgrade', 'h2c'],
}

/** Bytes from numbers, texts and others. */
export function bytes(...parts: readonly (number | string | Buffer)[]): Buffer {
  return Buffer.concat(
    parts.map(part => (typeof part === 'number' ? Buffer.from([part]) : Buffer.from(part as string, 'latin1'))),
  )
}

export function block(fields: Fields): Buffer {
  return bytes(...fields.map(([name, value]) => field(name, value)))
}

/** A literal that enters the table (RFC 7541 section 6.2.1). */
export function indexed(name: string, value: string): Buffer {
  return bytes(0x40, field(name, value).subarray(1))
}

/** The newest entry of the table. */
export const NEWEST = 0x80 | 62

export function headers(id: number, fields: Fields | Buffer, flags = END_HEADERS | END_STREAM): Buffer {
  return frame(TYPE.headers, flags, id, Buffer.isBuffer(fields) ? fields : block(fields))
}

export function continuation(id: number, fields: Fields | Buffer = [], flags = END_HEADERS): Buffer {
  return frame(TYPE.continuation, flags, id, Buffer.isBuffer(fields) ? fields : block(fields))
}

export function data(id: number, body: string | Buffer = 'x', flags = 0): Buffer {
  return frame(TYPE.data, flags, id, bytes(body))
}

export function ended(id: number, body: string | Buffer = 'x'): Buffer {
  return data(id, body, END_STREAM)
}

export function reset(id: number, code = 8): Buffer {
  return frame(TYPE.reset, 0, id, uint32(code))
}

export function window(id: number, size: number): Buffer {
  return frame(TYPE.window, 0, id, uint32(size))
}

export function priority(id: number, on = 0): Buffer {
  return frame(TYPE.priority, 0, id, bytes(uint32(on), 15))
}

export function settings(...entries: Buffer[]): Buffer {
  return frame(TYPE.settings, 0, 0, bytes(...entries))
}

/** The settings of a frame, by name. The last of several counts. */
export function settingsOf({ payload }: Frame): Partial<Record<keyof typeof SETTING, number>> {
  const names = Object.keys(SETTING) as (keyof typeof SETTING)[]
  const given: Partial<Record<keyof typeof SETTING, number>> = {}
  for (let at = 0; at + 6 <= payload.length; at += 6) {
    const name = names.find(one => SETTING[one] === payload.readUInt16BE(at))
    if (name !== undefined) given[name] = payload.readUInt32BE(at + 2)
  }
  return given
}

export function goaway(last: number, code = 0, debug = ''): Buffer {
  return frame(TYPE.goaway, 0, 0, bytes(uint32(last), uint32(code), debug))
}

export function push(id: number): Buffer {
  return frame(TYPE.push, END_HEADERS, id, bytes(uint32(2), head()))
}

/** A frame whose payload is so many zeros. */
export function zeros(type: number, id: number, size: number, flags = 0): Buffer {
  return frame(type, flags, id, Buffer.alloc(size))
}

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
    frames.push({
      type: bytes[at + 3]!,
      flags: bytes[at + 4]!,
      stream: bytes.readUInt32BE(at + 5) & 0x7fff_ffff,
      payload,
    })
    at += 9 + length
  }
  return frames
}
