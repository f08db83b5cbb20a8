/**
 * The preamble begins a stream: kind, length, then entries of type, length and value. All numbers are QUIC varints.
 *
 *     +----------+------------+------+--------+-------+------+-- ...
 *     | kind (i) | length (i) | type | length | value | type |
 *     +----------+------------+------+--------+-------+------+-- ...
 *
 * A stream with an unknown odd type is refused unprocessed; an unknown even type is skipped. None of this is a header field, so
 * no caller can forge it.
 */
import { canonicalAddress } from '../base/address.ts'
import { latin1 } from '../base/latin1.ts'
import { memoizeLast } from '../base/memoize-last.ts'
import { isHostName, isRuntimeName } from '../base/names.ts'
import { ProtocolError } from '../base/protocol-error.ts'
import { BODY_UNKNOWN } from '../exchange.ts'
import { type StreamKind, streamRules } from './stream-kinds.ts'
import { readVarint, varintSize, varintText } from './varint.ts'

/** Ids of the entries; SPEC.md has the same table. */
export const ENTRY = {
  exchangeId: 0x01,
  attempt: 0x03,
  runtime: 0x05,
  epoch: 0x07,
  timeLeftMs: 0x09,
  callerAddress: 0x0b,
  callerScheme: 0x0d,
  hops: 0x0f,
  body: 0x11,
  callerHost: 0x12,
  traced: 0x14,
  span: 0x16,
  ownHost: 0x18,
  heldMs: 0x1a,
} as const

/** The longest list of entries that is accepted, in bytes. */
export const MAX_PREAMBLE_BYTES = 1024
const EXCHANGE_ID_BYTES = 16
const MAX_HOST_BYTES = 255

/** The part of a stream before the head of its request. */
export interface Preamble {
  kind: StreamKind
  /** 16 random bytes as a latin1 string, made at the edge, the same over all attempts. */
  exchangeId: string
  /** 0 for the first. */
  attempt: number
  runtime: string
  epoch: number
  /** How long the edge will still wait for the head of the response; 0 for no limit. */
  timeLeftMs: number
  /** IP address of the caller in canonical form. */
  callerAddress: string
  callerScheme: 'http' | 'https'
  /** Host that the caller asked for, if it differs from the request's authority. */
  callerHost?: string | undefined
  /** How many replicas the stream has passed through: 0 or 1. */
  hops: number
  /** 0: no body; n: exactly n bytes; {@link BODY_UNKNOWN}. */
  bodyBytes: number
  /** The edge vouches for `traceparent`: it is its own, or that of a trusted proxy. Otherwise anyone may have written it. */
  traced?: boolean | undefined
  /** Id of the hop's span, 16 hex digits. Set if the replica at the other end wants the client's spans of this exchange. */
  span?: string | undefined
  /** The host of the runtime's own that the caller asked for, only on a hop. The session's token must name it. */
  ownHost?: string | undefined
  /** How long the exchange waited for a session at the edge, if it did. */
  heldMs?: number | undefined
}

/** The stream is refused as `unsupported`, because its sender needs something that this end does not know. */
export class UnsupportedError extends ProtocolError {}

const key = (type: number) => String.fromCharCode(type)
const EXCHANGE_ID = key(ENTRY.exchangeId) + key(EXCHANGE_ID_BYTES)
const SCHEME_HTTP = `${key(ENTRY.callerScheme)}\x01\x00`
const SCHEME_HTTPS = `${key(ENTRY.callerScheme)}\x01\x01`
const NO_BODY = `${key(ENTRY.body)}\x01\x00`
const UNKNOWN_BODY = `${key(ENTRY.body)}\x01\x02`
const ATTEMPT = key(ENTRY.attempt)
const RUNTIME = key(ENTRY.runtime)
const EPOCH = key(ENTRY.epoch)
const TIME_LEFT = key(ENTRY.timeLeftMs)
const ADDRESS = key(ENTRY.callerAddress)
const HOPS = key(ENTRY.hops)
const BODY = key(ENTRY.body)
const HOST = key(ENTRY.callerHost)
const TRACED = `${key(ENTRY.traced)}\x00`
const SPAN_BYTES = 8
const SPAN = key(ENTRY.span) + key(SPAN_BYTES)
const OWN_HOST = key(ENTRY.ownHost)
const HELD = key(ENTRY.heldMs)

const HOP_ENTRIES = [numberEntry(HOPS, 0), numberEntry(HOPS, 1)]

/** The bytes of the preamble, as a latin1 string. */
export function preambleText(preamble: Preamble): string {
  const host = preamble.callerHost
  const entries =
    EXCHANGE_ID +
    preamble.exchangeId +
    sessionEntries(preamble.attempt, preamble.runtime, preamble.epoch) +
    numberEntry(TIME_LEFT, preamble.timeLeftMs) +
    textEntry(ADDRESS, preamble.callerAddress) +
    (preamble.callerScheme === 'https' ? SCHEME_HTTPS : SCHEME_HTTP) +
    (HOP_ENTRIES[preamble.hops] ?? numberEntry(HOPS, preamble.hops)) +
    bodyEntry(preamble.bodyBytes) +
    (host === undefined ? '' : textEntry(HOST, host)) +
    (preamble.traced ? TRACED : '') +
    (preamble.span === undefined ? '' : SPAN + Buffer.from(preamble.span, 'hex').toString('latin1')) +
    (preamble.ownHost === undefined ? '' : textEntry(OWN_HOST, preamble.ownHost)) +
    (preamble.heldMs === undefined ? '' : numberEntry(HELD, preamble.heldMs))
  return varintText(preamble.kind) + varintText(entries.length) + entries
}

/** The entries that the streams of a session have in common. */
const sessionEntries = memoizeLast(
  (attempt: number, runtime: string, epoch: number) =>
    numberEntry(ATTEMPT, attempt) + textEntry(RUNTIME, runtime) + numberEntry(EPOCH, epoch),
)

function textEntry(type: string, value: string): string {
  return type + varintText(value.length) + value
}

function numberEntry(type: string, value: number): string {
  const text = varintText(value)
  return type + varintText(text.length) + text
}

function bodyEntry(bytes: number): string {
  if (bytes === 0) return NO_BODY
  if (bytes === BODY_UNKNOWN) return UNKNOWN_BODY
  const length = varintText(bytes)
  return BODY + varintText(1 + length.length) + varintText(1) + length
}

/**
 * The end of the preamble that begins at `at`, or -1 if `bytes` up to `end` do not contain all of it.
 *
 * @throws ProtocolError if it is too long.
 */
export function preambleEnd(bytes: Uint8Array, at: number, end: number): number {
  if (at >= end) return -1
  const lengthAt = at + varintSize(bytes[at]!)
  if (lengthAt >= end) return -1
  const start = lengthAt + varintSize(bytes[lengthAt]!)
  if (start > end) return -1
  const length = readVarint(bytes, lengthAt)
  if (length > MAX_PREAMBLE_BYTES) throw new ProtocolError('preamble too long')
  return start + length > end ? -1 : start + length
}

/** Which entries have been seen, as a bit set by type. */
const REQUIRED = bits(
  ENTRY.exchangeId,
  ENTRY.attempt,
  ENTRY.runtime,
  ENTRY.epoch,
  ENTRY.timeLeftMs,
  ENTRY.callerAddress,
  ENTRY.callerScheme,
  ENTRY.hops,
  ENTRY.body,
)

function bits(...types: number[]): number {
  return types.reduce((set, type) => set | (1 << type), 0)
}

/**
 * Decodes the preamble that begins at `at` and ends at `end` (see {@link preambleEnd}).
 *
 * @throws UnsupportedError for an unknown kind or odd type; ProtocolError if the preamble is malformed.
 */
export function decodePreamble(bytes: Uint8Array, at: number, end: number): Preamble {
  const kind = readVarint(bytes, at)
  if (streamRules(kind) === undefined) throw new UnsupportedError(`stream of kind ${kind}`)
  const preamble: Preamble = {
    kind: kind as StreamKind,
    exchangeId: '',
    attempt: 0,
    runtime: '',
    epoch: 0,
    timeLeftMs: 0,
    callerAddress: '',
    callerScheme: 'http',
    hops: 0,
    bodyBytes: 0,
  }
  let seen = 0
  let position = at + varintSize(bytes[at]!)
  position += varintSize(bytes[position]!)
  while (position < end) {
    const type = varintAt(bytes, position, end)
    position += varintSize(bytes[position]!)
    const length = varintAt(bytes, position, end)
    position += varintSize(bytes[position]!)
    const next = position + length
    if (next > end) throw new ProtocolError('preamble entry too long')
    if (type < 32) {
      const bit = 1 << type
      if (seen & bit) throw new ProtocolError('preamble entry given twice')
      seen |= bit
    }
    decodeEntry(preamble, type, bytes, position, next)
    position = next
  }
  if ((seen & REQUIRED) !== REQUIRED) throw new ProtocolError('preamble entry missing')
  return preamble
}

function decodeEntry(preamble: Preamble, type: number, bytes: Uint8Array, at: number, end: number): void {
  switch (type) {
    case ENTRY.exchangeId:
      if (end - at !== EXCHANGE_ID_BYTES) throw new ProtocolError('malformed exchange id')
      preamble.exchangeId = latin1(bytes, at, end)
      return
    case ENTRY.attempt:
      preamble.attempt = wholeVarint(bytes, at, end)
      return
    case ENTRY.runtime:
      preamble.runtime = decodeLabel(bytes, at, end)
      return
    case ENTRY.epoch:
      preamble.epoch = wholeVarint(bytes, at, end)
      return
    case ENTRY.timeLeftMs:
      preamble.timeLeftMs = wholeVarint(bytes, at, end)
      return
    case ENTRY.callerAddress:
      preamble.callerAddress = decodeAddress(bytes, at, end)
      return
    case ENTRY.callerScheme:
      preamble.callerScheme = decodeScheme(bytes, at, end)
      return
    case ENTRY.hops:
      preamble.hops = wholeVarint(bytes, at, end)
      return
    case ENTRY.body:
      preamble.bodyBytes = decodeBody(bytes, at, end)
      return
    case ENTRY.callerHost:
      preamble.callerHost = decodeHost(bytes, at, end)
      return
    case ENTRY.traced:
      if (at !== end) throw new ProtocolError('malformed trace entry')
      preamble.traced = true
      return
    case ENTRY.span:
      if (end - at !== SPAN_BYTES) throw new ProtocolError('malformed span id')
      preamble.span = Buffer.from(bytes.subarray(at, end)).toString('hex')
      return
    case ENTRY.ownHost:
      preamble.ownHost = decodeOwnHost(bytes, at, end)
      return
    case ENTRY.heldMs:
      preamble.heldMs = wholeVarint(bytes, at, end)
      return
    default:
      if (type % 2 === 1) throw new UnsupportedError(`preamble entry ${type}`)
  }
}

function varintAt(bytes: Uint8Array, at: number, end: number): number {
  if (at >= end || at + varintSize(bytes[at]!) > end) throw new ProtocolError('preamble cut short')
  return readVarint(bytes, at)
}

/** A varint that fills its entry. */
function wholeVarint(bytes: Uint8Array, at: number, end: number): number {
  const value = varintAt(bytes, at, end)
  if (at + varintSize(bytes[at]!) !== end || value === Number.POSITIVE_INFINITY) {
    throw new ProtocolError('malformed number in the preamble')
  }
  return value
}

type DecodeText = (bytes: Uint8Array, at: number, end: number) => string

/** Streams of a session share most of their texts. A text that equals the last one needs no new string and no new check. */
function reusingLast(decode: DecodeText): DecodeText {
  let last: string | undefined
  return (bytes, at, end) => {
    if (last === undefined || !isSame(last, bytes, at, end)) last = decode(bytes, at, end)
    return last
  }
}

function isSame(text: string, bytes: Uint8Array, at: number, end: number): boolean {
  if (text.length !== end - at) return false
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) !== bytes[at + i]) return false
  return true
}

const decodeLabel = reusingLast((bytes, at, end) => {
  const label = latin1(bytes, at, end)
  if (!isRuntimeName(label)) throw new ProtocolError('malformed runtime')
  return label
})

const decodeAddress = reusingLast((bytes, at, end) => {
  const address = end - at <= 45 ? latin1(bytes, at, end) : ''
  if (address === '' || canonicalAddress(address) !== address) throw new ProtocolError('malformed caller address')
  return address
})

function decodeScheme(bytes: Uint8Array, at: number, end: number): 'http' | 'https' {
  const scheme = wholeVarint(bytes, at, end)
  if (scheme > 1) throw new ProtocolError('unknown caller scheme')
  return scheme === 1 ? 'https' : 'http'
}

function decodeBody(bytes: Uint8Array, at: number, end: number): number {
  const form = varintAt(bytes, at, end)
  const rest = at + varintSize(bytes[at]!)
  if (form === 1) return wholeVarint(bytes, rest, end)
  if (rest !== end || form > 2) throw new ProtocolError('malformed body form')
  return form === 0 ? 0 : BODY_UNKNOWN
}

const decodeHost = reusingLast((bytes, at, end) => {
  const host = end - at <= MAX_HOST_BYTES ? latin1(bytes, at, end) : ''
  if (!/^[!-~]+$/.test(host)) throw new ProtocolError('malformed caller host')
  return host
})

const decodeOwnHost = reusingLast((bytes, at, end) => {
  const host = latin1(bytes, at, end)
  if (!isHostName(host)) throw new ProtocolError("malformed host of the runtime's own")
  return host
})
