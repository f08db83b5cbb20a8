/** Random ids. Many are cut from one string, which is made from the system's random bytes whenever it is used up. */
import { Buffer } from 'node:buffer'
import { randomFillSync } from 'node:crypto'
import { latin1 } from './latin1.ts'

/** Few large calls: between requests, the code of the system call leaves the CPU caches, and a call takes 20 µs instead of 2. */
const RANDOM_BYTES = 32 * 1024
const ID_BYTES = 16
const EXCHANGE_IDS = 256
const SPAN_ID_BYTES = 8
const SPAN_IDS = 128
const UUIDS = 64
const UUID_CHARS = 36
const DASH = 0x2d
const DIGITS = Buffer.from('0123456789abcdef')

function cutFrom(makeText: () => string, chars: number): () => string {
  let text = ''
  let used = 0
  return () => {
    if (used === text.length) {
      text = makeText()
      used = 0
    }
    const start = used
    used += chars
    return text.slice(start, used)
  }
}

const random = Buffer.allocUnsafeSlow(RANDOM_BYTES)
let randomUsed = RANDOM_BYTES

/** A view of fresh random bytes. Use it up before the next call. */
function randomBytes(count: number): Buffer {
  if (randomUsed + count > random.length) {
    randomFillSync(random)
    randomUsed = 0
  }
  const start = randomUsed
  randomUsed += count
  return random.subarray(start, randomUsed)
}

/** 16 random bytes, as a latin1 string. */
export const newExchangeId = cutFrom(() => latin1(randomBytes(EXCHANGE_IDS * ID_BYTES)), ID_BYTES)

/** 32 random hex digits, for a trace. */
export const newTraceId = cutFrom(() => randomBytes(SPAN_IDS * ID_BYTES).toString('hex'), 2 * ID_BYTES)

/** 16 random hex digits, for a span. */
export const newSpanId = cutFrom(() => randomBytes(SPAN_IDS * SPAN_ID_BYTES).toString('hex'), 2 * SPAN_ID_BYTES)

/** An exchange id as text, for logs. */
export function exchangeIdText(id: string): string {
  return Buffer.from(id, 'latin1').toString('hex')
}

/**
 * A random UUID (RFC 9562 section 5.4). Node's `randomUUID` joins twenty strings for each, a tenth of all the garbage of a
 * small request.
 */
export const newRequestId = cutFrom(() => uuids(randomBytes(UUIDS * ID_BYTES)), UUID_CHARS)

/** Writes version and variant into the bytes. */
function uuids(bytes: Buffer): string {
  const text = Buffer.allocUnsafe(UUIDS * UUID_CHARS)
  let to = 0
  for (let at = 0; at < bytes.length; at++) {
    const place = at % ID_BYTES
    if (place === 6) bytes[at] = (bytes[at]! & 0x0f) | 0x40
    if (place === 8) bytes[at] = (bytes[at]! & 0x3f) | 0x80
    if (place === 4 || place === 6 || place === 8 || place === 10) text[to++] = DASH
    text[to++] = DIGITS[bytes[at]! >>> 4]!
    text[to++] = DIGITS[bytes[at]! & 0x0f]!
  }
  return latin1(text)
}
