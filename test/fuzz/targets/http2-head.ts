import type { SallyportError } from '../../../protocol/base/errors.ts'
import type { HttpRequest } from '../../../protocol/exchange.ts'
import { isAuthority, isPath, isToken } from '../../../protocol/http/headers.ts'
import { outgoingBlock } from '../../../protocol/http/http2/headers.ts'
import { http2Request } from '../../../protocol/http/http2/request-head.ts'
import { DEFAULT_HTTP_LIMITS } from '../../../protocol/http/limits.ts'
import { canonicalRequestHeaders, holds, ourErrorOr, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'
import { roundTrip } from './http1-edge.ts'

/** What we write always has a scheme and a length, though what we read may not. */
const ROOMIER = { ...DEFAULT_HTTP_LIMITS, headBytes: DEFAULT_HTTP_LIMITS.headBytes + 64 }

const PEER = { address: '192.0.2.1', encrypted: true }

const PSEUDO: Record<string, readonly string[]> = {
  ':method': ['GET', 'POST', 'HEAD', 'FOO', 'CONNECT', 'TRACE', 'G T', '', 'get'],
  ':path': ['/', '/a?b', '/a b', '*', '', '/a#b', '/\x80', 'http://a/', '//a', '/\r\n'],
  ':authority': ['demo.test', 'demo.test:80', 'a@b', '', 'a b', '[::1]', 'demo.test\r\nx: y'],
  ':scheme': ['https', 'http', 'x'],
  ':protocol': ['websocket', 'x'],
}
const FIELDS: readonly [string, string][] = [
  ...([
    ['accept', '*/*'],
    ['cookie', 'a=b'],
    ['cookie', 'c=d'],
    ['content-length', '5'],
    ['content-length', '05x'],
  ] as const),
  ...([
    ['transfer-encoding', 'chunked'],
    ['connection', 'close'],
    ['te', 'trailers'],
    ['te', 'gzip'],
    ['host', 'other'],
  ] as const),
  ...([
    ['expect', '100-continue'],
    ['x-a', 'b\r\nc: d'],
    ['x-a', 'b\0'],
    ['upgrade', 'h2c'],
    ['sec-websocket-version', '13'],
  ] as const),
  ...([
    ['__proto__', 'x'],
    ['constructor', 'y'],
    ['proxy-connection', 'x'],
    ['keep-alive', 'x'],
    ['x-a', ''],
  ] as const),
] as [string, string][]

/** A block as text: names and values alternate, each with its own terminator. */
function encodeBlock(block: readonly string[]): Buffer {
  return Buffer.from(block.map(text => `${text}\x1e`).join(''), 'latin1')
}

function decodeBlock(bytes: Buffer): string[] {
  const block = bytes.toString('latin1').split('\x1e').slice(0, -1)
  return block.length % 2 === 0 ? block : block.slice(0, -1)
}

function anyBlock(random: Random): string[] {
  const block: string[] = []
  for (const [name, values] of Object.entries(PSEUDO)) {
    if (name === ':protocol' ? !random.oneIn(10) : random.oneIn(20)) continue
    block.push(name, random.oneIn(6) ? random.pick(values) : values[0]!)
  }
  for (let left = random.oneIn(40) ? 130 : random.int(5); left > 0; left--) block.push(...random.pick(FIELDS))
  if (random.oneIn(40)) block.push('x-long', 'x'.repeat(random.size(20_000)))
  return block
}

function read(raw: readonly string[], input: Buffer): HttpRequest | SallyportError {
  const ended = ((input[0] ?? 0) & 1) === 1
  return ourErrorOr(() => http2Request(raw, ended, DEFAULT_HTTP_LIMITS, PEER))
}

/** Reads an input as a request. Undefined if it is refused. */
export function readHttp2Head(input: Buffer): HttpRequest | undefined {
  const request = read(decodeBlock(input.subarray(1)), input)
  return request instanceof Error ? undefined : request
}

/** The first byte decides whether the block ended the stream. */
export const http2Head: FuzzTarget = {
  name: 'http2-head',

  generate(random) {
    const bytes = encodeBlock(anyBlock(random))
    return Buffer.concat([random.bytes(1), random.oneIn(2) ? bytes : mutate(bytes, random)])
  },

  async execute(input) {
    const request = read(decodeBlock(input.subarray(1)), input)
    if (request instanceof Error) return
    holds(isToken(request.method) && !['CONNECT', 'TRACE'].includes(request.method), 'a method')
    holds(isPath(request.path) && request.path.length <= DEFAULT_HTTP_LIMITS.uriBytes, 'a path')
    holds(isAuthority(request.authority), 'an authority')
    holds(request.headers.length <= 2 * (DEFAULT_HTTP_LIMITS.headFields + 5), 'no more fields than allowed')
    canonicalRequestHeaders(request.headers)
    holds(request.headers.filter((text, i) => i % 2 === 0 && text === 'expect').length <= 1, 'one expectation')
    const lengths = request.headers.filter((_, i, all) => i % 2 === 1 && all[i - 1] === 'content-length')
    holds(lengths.length <= 1 && lengths.every(text => Number(text) === request.bodyBytes), 'one length')
    const block = outgoingBlock([], request.headers, true)
    const again = http2Request([...pseudo(request), ...block], request.bodyBytes === 0, ROOMIER, PEER)
    same(withoutLength(again.headers), withoutLength(request.headers), 'decode(encode(x)) = x')
    if (request.upgrade) return
    const chunks = request.bodyBytes > 0 ? [Buffer.alloc(Math.min(request.bodyBytes, 100), 'x')] : []
    if (request.bodyBytes <= 100) await roundTrip({ request, chunks, trailers: [], aborted: false })
  },
}

function withoutLength(headers: readonly string[]): string[] {
  return headers.filter((_, i, all) => all[i - (i % 2)] !== 'content-length')
}

function pseudo(request: { method: string; path: string; authority: string; upgrade: boolean }): string[] {
  const { method, path, authority } = request
  const all = [
    ':method',
    request.upgrade ? 'CONNECT' : method,
    ':path',
    path,
    ':authority',
    authority,
    ':scheme',
    'https',
  ]
  return request.upgrade ? [...all, ':protocol', 'websocket', 'sec-websocket-version', '13'] : all
}
