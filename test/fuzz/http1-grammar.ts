/** HTTP/1.1 messages as attackers write them: mostly correct, with one or two things that parsers interpret differently. */
import { mutate } from './mutate.ts'
import type { Random } from './random.ts'

export const HTTP1_WORDS = [
  ...['\r\n', '\n', '\r', '\0', '\t', ' ', ':', '\r\n\r\n', '\n\n', '\r\n ', '\x0b', '\x0c', '\x85', '\xa0', ';', ','],
  ...[
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: identity\r\n',
    'Content-Length: 5\r\n',
    'Content-Length: 0\r\n',
  ],
  ...['Host: other\r\n', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/0.9', 'GET / HTTP/1.1\r\n', '0\r\n\r\n', '5\r\nhello\r\n'],
  ...[
    'Connection: close\r\n',
    'Connection: Upgrade\r\n',
    'Upgrade: websocket\r\n',
    'chunked',
    '+',
    '-',
    '0x',
    '%00',
    '//',
  ],
] as const

const METHODS = [
  'GET',
  'GET',
  'POST',
  'PUT',
  'HEAD',
  'OPTIONS',
  'DELETE',
  'FOO',
  'M-SEARCH',
  'CONNECT',
  'TRACE',
  'get',
  'G T',
]
const TARGETS = [
  ...[
    '/',
    '/a',
    '/a/b?c=d',
    '/a//b',
    '/a/../b',
    '/%2e%2e/a',
    '/a%2fb',
    '/a;b',
    '/?a?b',
    '/a:b',
    '//host/a',
    '/a\\b',
    '/~a',
  ],
  ...[
    'http://demo.test/a',
    'http://other.test/',
    'HTTP://demo.test',
    'https://a@demo.test/',
    '*',
    'demo.test:80',
    '',
    '/a#b',
    '/\x80',
  ],
  ...['/a|b', '/a"b', '/a{b}', '/a^b', '/a`b', '/a<b>', '/%', '/%zz', '?a', 'a'],
]
const VERSIONS = [
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/1.2',
  'HTTP/2.0',
  'http/1.1',
  'HTTP/1.1 ',
  '',
  'HTTP/01.1',
]
const HOSTS = [
  'demo.test',
  'demo.test',
  'demo.test:80',
  'DEMO.test',
  'demo.test.',
  'a@demo.test',
  'demo.test:',
  '[::1]',
  '',
  'a b',
  'a,b',
  'demo.test:99999',
]
const LENGTHS = [
  '5',
  '05',
  '+5',
  '-5',
  '5,5',
  '5 ',
  '0x5',
  '5.0',
  '',
  '5;',
  '99999999999999999999',
  '5\t',
  '5, 6',
  '5e0',
]
const CODINGS = [
  ...[
    'chunked',
    'Chunked',
    'chunked, chunked',
    'gzip, chunked',
    'identity',
    'chunked;a=b',
    ' chunked',
    'chunked ',
    '\tchunked',
  ],
  ...['xchunked', 'chunked,', ',chunked', 'chunk\\ed', '"chunked"', '', 'chunked\x0b', 'chunked, identity'],
]
const ODD_FIELDS = [
  ...[
    'Host: other.test',
    'X-A : b',
    ' X-A: b',
    'X-A',
    ': b',
    'X-A: b\x00c',
    'X-A: b\rc',
    'X-A:\x0bb',
    'X A: b',
    'X-A: \x80\xff',
  ],
  ...[
    'Connection: close',
    'Connection: keep-alive, X-A',
    'Connection: Content-Length',
    'Connection: Host',
    'Connection: Transfer-Encoding',
  ],
  ...[
    'Expect: 100-continue',
    'Expect: 200-ok',
    'TE: trailers',
    'Trailer: X-T',
    'Upgrade: h2c',
    'HTTP2-Settings: AAMA',
    'Keep-Alive: timeout=5',
  ],
  ...[
    'Proxy-Connection: keep-alive',
    'Transfer_Encoding: chunked',
    'Content_Length: 5',
    '__proto__: a',
    'constructor: b',
    'X-A: b, c',
    'X-A:',
  ],
  ...[
    'Cookie: a=b',
    'Cookie: c=d',
    'Range: bytes=0-1',
    'Accept-Encoding: gzip',
    'X-A: b\r\n folded',
    'X-A: b\nX-B: c',
    'Content-Encoding: gzip',
  ],
]
const SIZES = [
  '5',
  '05',
  '5;a=b',
  '5 ',
  ' 5',
  '0x5',
  '+5',
  '5;a="b\r\n"',
  '00000000000000005',
  'ffffffffffffffff',
  'A',
  '',
  'g',
  '5;',
  '5\t',
  '-5',
  '5\n',
]
const UPGRADE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'

/** One request. If `polite`, all of it is correct. */
export function anyRequest(random: Random, polite = random.oneIn(3)): string {
  const odd = () => !polite && random.oneIn(6)
  const method = odd() ? random.pick(METHODS) : random.pick(['GET', 'POST', 'HEAD', 'PUT', 'FOO'])
  const target = odd() ? random.pick(TARGETS) : random.pick(TARGETS.slice(0, 4))
  const version = odd() ? random.pick(VERSIONS) : 'HTTP/1.1'
  const eol = odd() ? random.pick(['\n', '\r', '\r\r\n', '\r\n\r\n']) : '\r\n'
  const lines = [`Host${odd() ? random.pick([' ', '\t', '']) : ''}: ${odd() ? random.pick(HOSTS) : 'demo.test'}`]
  if (odd()) lines.pop()
  for (let left = random.int(4); left > 0; left--) lines.push(odd() ? random.pick(ODD_FIELDS) : `X-${random.int(9)}: v`)
  if (random.oneIn(60)) for (let left = 120; left > 0; left--) lines.push('X-Many: 1')
  if (random.oneIn(60)) lines.push(`X-Long: ${'x'.repeat(random.size(20_000))}`)
  const upgrade = random.oneIn(10) ? UPGRADE : ''
  const { fields, body } = upgrade === '' ? anyBody(random, odd) : { fields: [], body: 'raw bytes' }
  lines.push(...fields)
  if (odd()) lines.sort(() => (random.oneIn(2) ? 1 : -1))
  return `${method} ${target}${version === '' ? '' : ` ${version}`}${eol}${lines.join('\r\n')}\r\n${upgrade}\r\n${body}`
}

function anyBody(random: Random, odd: () => boolean): { fields: string[]; body: string } {
  const fields: string[] = []
  const form = random.int(4)
  if (form === 0) return { fields, body: odd() ? 'hello' : '' }
  if (form === 1) {
    fields.push(`Content-Length: ${odd() ? random.pick(LENGTHS) : '5'}`)
    if (odd()) fields.push(`Content-Length: ${random.pick(LENGTHS)}`)
    if (odd()) fields.push(`Transfer-Encoding: ${random.pick(CODINGS)}`)
    return { fields, body: odd() ? random.pick(['hell', 'hello!', '5\r\nhello\r\n0\r\n\r\n', '']) : 'hello' }
  }
  const name = odd()
    ? random.pick(['Transfer-Encoding ', 'transfer-encoding', 'Transfer\x00-Encoding', 'TE'])
    : 'Transfer-Encoding'
  fields.push(`${name}: ${odd() ? random.pick(CODINGS) : 'chunked'}`)
  if (odd()) fields.push(`Transfer-Encoding: ${random.pick(CODINGS)}`)
  return { fields, body: anyChunks(random, odd) }
}

export function anyChunks(random: Random, odd: () => boolean): string {
  let body = ''
  for (let left = random.between(1, 3); left > 0; left--) {
    const size = odd() ? random.pick(SIZES) : '5'
    body += `${size}\r\nhello${odd() ? random.pick(['', '\n', '\r', 'x\r\n', '\r\n\r\n']) : '\r\n'}`
  }
  const trailers = random.oneIn(3) ? `X-T: 1\r\n${odd() ? `${random.pick(ODD_FIELDS)}\r\n` : ''}` : ''
  return `${body}${odd() ? random.pick(['', '0\n', '0;a\r\n', '00\r\n', '-0\r\n']) : '0\r\n'}${trailers}${odd() ? random.pick(['', '\n', '\r']) : '\r\n'}`
}

/** The requests of one connection, with a few changes. */
export function anyRequests(random: Random): Buffer {
  let text = ''
  for (let left = random.between(1, 3); left > 0; left--) text += anyRequest(random)
  const bytes = Buffer.from(text, 'latin1')
  return random.oneIn(2) ? bytes : mutate(bytes, random, HTTP1_WORDS)
}

const STATUS_LINES = [
  ...[
    'HTTP/1.1 200 OK',
    'HTTP/1.1 200',
    'HTTP/1.1 200 ',
    'HTTP/1.0 200 OK',
    'HTTP/1.1 204 No',
    'HTTP/1.1 304 Not',
    'HTTP/1.1 500 x',
  ],
  ...[
    'HTTP/1.1 100 Continue',
    'HTTP/1.1 103 Early',
    'HTTP/1.1 101 Switching',
    'HTTP/1.1 599 x',
    'HTTP/1.1 600 x',
    'HTTP/1.1 099 x',
  ],
  ...[
    'HTTP/1.1 20 OK',
    'HTTP/1.1 2000 OK',
    'HTTP/1.1  200 OK',
    'http/1.1 200 OK',
    'HTTP/2 200',
    '200 OK',
    'HTTP/1.1 200 \x00',
    'HTTP/1.1\t200 OK',
  ],
]
const RESPONSE_FIELDS = [
  ...[
    'Content-Length: 5',
    'Content-Length: 0',
    'Content-Length: 05',
    'Content-Length: 5, 5',
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: gzip',
  ],
  ...[
    'Connection: close',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
    'Keep-Alive: timeout=5',
  ],
  ...[
    'X-A: b\r\n c',
    'X-A : b',
    'X-A: b\rc',
    'X-A',
    'Set-Cookie: a',
    'Set-Cookie: b',
    'Trailer: X-T',
    'Content-Encoding: gzip',
    'Date: x',
  ],
]

/** What an upstream may answer to one request. */
export function anyResponse(random: Random): Buffer {
  const odd = () => random.oneIn(8)
  let text = ''
  for (let left = random.oneIn(30) ? 40 : random.oneIn(4) ? 2 : 0; left > 0; left--) {
    text += `${random.pick(['HTTP/1.1 100 Continue', 'HTTP/1.1 103 Early Hints'])}\r\n${odd() ? 'Link: x\r\n' : ''}\r\n`
  }
  text += `${odd() ? random.pick(STATUS_LINES) : random.pick(STATUS_LINES.slice(0, 7))}\r\n`
  for (let left = random.int(4); left > 0; left--)
    text += `${odd() ? random.pick(RESPONSE_FIELDS) : `X-${random.int(9)}: v`}\r\n`
  const form = random.int(3)
  if (form === 0) text += '\r\nhello'
  else if (form === 1) text += 'Content-Length: 5\r\n\r\nhello'
  else text += `Transfer-Encoding: chunked\r\n\r\n${anyChunks(random, odd)}`
  if (odd()) text += 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'
  const bytes = Buffer.from(text, 'latin1')
  return random.oneIn(2) ? bytes : mutate(bytes, random, HTTP1_WORDS)
}
