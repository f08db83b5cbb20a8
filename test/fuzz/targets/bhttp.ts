import { BODY_UNKNOWN, type HeaderList } from '../../../protocol/exchange.ts'
import { MAX_INFORMATIONAL, MessageDecoder } from '../../../protocol/wire/bhttp/decoder.ts'
import {
  messageEndText,
  RESPONSE_START,
  requestHeadText,
  responseHeadText,
} from '../../../protocol/wire/bhttp/encode.ts'
import { fieldsText, MAX_FIELDS } from '../../../protocol/wire/bhttp/fields.ts'
import { varintText } from '../../../protocol/wire/varint.ts'
import { canonicalHeaders, holds, ourErrorOr, same } from '../holds.ts'
import { cut, mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const NAMES = ['accept', 'content-length', 'x-a', 'cookie', 'te', 'host', 'connection', 'X-A', 'a b', '', 'set-cookie']
const VALUES = ['', '0', '5', 'trailers', 'a', ' a', 'a ', 'a\tb', 'a\nb', '\x80\xff', '\0', 'x'.repeat(70)]

export function anyHeaders(random: Random, most = 6): HeaderList {
  const headers: HeaderList = []
  const polite = !random.oneIn(4)
  for (let left = random.oneIn(40) ? 150 : random.int(most); left > 0; left--) {
    headers.push(
      polite ? random.pick(['accept', 'x-a', 'cookie', 'content-length']) : random.pick(NAMES),
      polite ? random.pick(['', '5', 'a\tb', '\x80\xff', 'x'.repeat(70)]) : random.pick(VALUES),
    )
  }
  return headers
}

function content(random: Random): string {
  let text = ''
  for (let left = random.int(4); left > 0; left--) {
    const chunk = random.bytes(random.between(1, random.oneIn(10) ? 3000 : 20)).toString('latin1')
    text += varintText(random.oneIn(20) ? random.size(100_000) : chunk.length) + chunk
  }
  return text
}

/** Unlike ours, with any fields. */
function anyResponseHead(status: number, headers: HeaderList): string {
  return `${varintText(status)}${fieldsText(headers)}\0`
}

export function anyMessage(random: Random, side: 'request' | 'response'): string {
  const end = messageEndText(anyHeaders(random, 3))
  if (side === 'request') {
    const odd = random.oneIn(2)
    const method = random.pick(odd ? ['GET', 'POST', 'FOO', 'CONNECT', 'a b', ''] : ['GET', 'POST'])
    const path = random.pick(odd ? ['/', '/a?b', 'a', '', '/#', `/${'x'.repeat(random.size(9000))}`] : ['/'])
    const authority = random.pick(odd ? ['demo.example.com', 'a:80', '', 'a@b', '[::1]'] : ['a:80'])
    return (
      requestHeadText(method, random.pick(['http', 'https']), authority, path, anyHeaders(random)) +
      content(random) +
      end
    )
  }
  let text = RESPONSE_START
  for (let left = random.oneIn(20) ? 40 : random.int(3); left > 0; left--) {
    text += anyResponseHead(random.pick([100, 102, 103, 199, 101]), anyHeaders(random, 2))
  }
  return (
    text +
    anyResponseHead(random.pick([200, 204, 304, 404, 599, 600, 99, 101]), anyHeaders(random)) +
    content(random) +
    end
  )
}

interface Decoded {
  readonly heads: unknown[]
  body: string
  trailers: HeaderList
  complete: boolean
  failed: boolean
  framing: number
}

function decode(pieces: readonly Uint8Array[], side: 'request' | 'response', bodyBytes: number): Decoded {
  const seen: Decoded = { heads: [], body: '', trailers: [], complete: false, failed: false, framing: 0 }
  const decoder = new MessageDecoder(
    {
      prefix: (_bytes, at) => at,
      request: (...head) => {
        seen.heads.push(head)
        return bodyBytes
      },
      informational: (...head) => void seen.heads.push(head),
      response: (...head) => {
        seen.heads.push(head)
        return bodyBytes
      },
      content: chunk => {
        holds(chunk.length > 0, 'content is never empty')
        seen.body += Buffer.from(chunk).toString('latin1')
      },
    },
    side,
  )
  for (const piece of pieces) {
    const framing = ourErrorOr(() => decoder.push(piece))
    if (framing instanceof Error) {
      seen.failed = true
      break
    }
    holds(framing >= 0 && framing <= piece.length, 'no more framing than bytes')
    seen.framing += framing
  }
  seen.complete = decoder.complete
  seen.trailers = decoder.trailers
  return seen
}

function encode(seen: Decoded, side: 'request' | 'response'): Buffer {
  const body = seen.body === '' ? '' : varintText(seen.body.length) + seen.body
  const end = messageEndText(seen.trailers)
  const heads = seen.heads.map(head =>
    side === 'request'
      ? requestHeadText(...(head as Parameters<typeof requestHeadText>))
      : responseHeadText(...(head as Parameters<typeof responseHeadText>)),
  )
  return Buffer.from((side === 'request' ? '' : RESPONSE_START) + heads.join('') + body + end, 'latin1')
}

/** The first byte selects the side, and how much content was announced. */
export const bhttp: FuzzTarget = {
  name: 'bhttp',

  generate(random) {
    const mode = random.bytes(1)
    const message = Buffer.from(anyMessage(random, mode[0]! & 1 ? 'response' : 'request'), 'latin1')
    return Buffer.concat([mode, random.oneIn(2) ? message : mutate(message, random)])
  },

  execute(input) {
    const mode = input[0] ?? 0
    const bytes = input.subarray(1)
    const side = mode & 1 ? 'response' : 'request'
    const announced = mode & 2 ? mode >>> 2 : BODY_UNKNOWN
    const whole = decode([bytes], side, announced)
    const pieces = decode(cut(bytes, new Random(input)), side, announced)
    if (whole.failed) holds(pieces.failed, 'refused at any cut')
    else same(pieces, whole, 'any cut is read alike')
    for (const head of whole.heads) {
      const headers = (head as unknown[]).at(-1) as HeaderList
      holds(headers.length <= 2 * MAX_FIELDS, 'no more fields than allowed')
      canonicalHeaders(headers)
    }
    if (side === 'response') holds(whole.heads.length <= MAX_INFORMATIONAL + 1, 'informational responses are bounded')
    if (!whole.complete || whole.failed) return
    if (announced !== BODY_UNKNOWN) holds(whole.body.length === announced, 'as much content as was announced')
    // The receiver of the head checks the scheme. We only write the two that exist.
    if (side === 'request' && !/^https?$/.test((whole.heads[0] as string[])[1]!)) return
    const again = decode([encode(whole, side)], side, announced)
    same({ ...again, framing: 0 }, { ...whole, framing: 0 }, 'decode(encode(x)) = x')
  },
}
