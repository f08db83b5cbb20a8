/** Common field names as shared strings, so that parsing a head allocates none, and how the codec treats each. */

/** How the codec treats a field. */
export const FIELD_KIND = {
  plain: 0,
  host: 1,
  contentLength: 2,
  transferEncoding: 3,
  connection: 4,
  upgrade: 5,
  /** Belongs to one hop, and is dropped. */
  dropped: 6,
  expect: 7,
  webSocketKey: 8,
  webSocketVersion: 9,
  webSocketAccept: 10,
  keepAlive: 11,
  /** Would be read as a hop-by-hop or framing field by software to which `_`, `.` or any other sign is a `-`. */
  twin: 12,
} as const

const SPECIAL: readonly [string, number][] = [
  ['host', FIELD_KIND.host],
  ['content-length', FIELD_KIND.contentLength],
  ['transfer-encoding', FIELD_KIND.transferEncoding],
  ['connection', FIELD_KIND.connection],
  ['upgrade', FIELD_KIND.upgrade],
  ['te', FIELD_KIND.dropped],
  ['proxy-connection', FIELD_KIND.dropped],
  ['proxy-authenticate', FIELD_KIND.dropped],
  ['proxy-authorization', FIELD_KIND.dropped],
  ['http2-settings', FIELD_KIND.dropped],
  ['expect', FIELD_KIND.expect],
  ['sec-websocket-key', FIELD_KIND.webSocketKey],
  ['sec-websocket-version', FIELD_KIND.webSocketVersion],
  ['sec-websocket-accept', FIELD_KIND.webSocketAccept],
  ['keep-alive', FIELD_KIND.keepAlive],
]

const COMMON = `accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials
access-control-allow-headers access-control-allow-methods access-control-allow-origin access-control-expose-headers
access-control-max-age access-control-request-headers access-control-request-method age allow alt-svc authorization
cache-control cdn-loop cf-connecting-ip cf-ray content-disposition content-encoding content-language content-location
content-range content-security-policy content-type cookie date dnt etag expires forwarded from grpc-accept-encoding
grpc-encoding grpc-message grpc-status grpc-timeout if-match if-modified-since if-none-match if-range
if-unmodified-since idempotency-key last-event-id last-modified link location max-forwards nel origin pragma priority
range referer referrer-policy report-to retry-after sallyport-error sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform
sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user sec-websocket-extensions sec-websocket-protocol server
server-timing set-cookie strict-transport-security traceparent tracestate trailer transfer-encoding
upgrade-insecure-requests user-agent vary via www-authenticate x-access-token x-content-type-options x-correlation-id
x-csrf-token x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-frame-options x-github-delivery
x-github-event x-github-hook-id x-gitlab-event x-gitlab-token x-hub-signature x-hub-signature-256 x-powered-by
x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-real-ip x-request-id x-requested-with x-xss-protection`

const SLOTS = 1024
const names: (string | undefined)[] = new Array(SLOTS).fill(undefined)
const kinds = new Uint8Array(SLOTS)
/** The text before the value in an HTTP/1.1 head, including the line break before it. */
const lineStarts: string[] = new Array(SLOTS).fill('')

/** Slot of a name, by its length and three of its characters in lower case. On a collision, the next free slot is used. */
function slotOf(length: number, first: number, middle: number, last: number): number {
  return (length * 101 + first * 7 + middle * 31 + last * 167) & (SLOTS - 1)
}

/** The slot that has the name, or the free one where it would go. */
function slotFor(name: string): number {
  const { length } = name
  let slot = slotOf(length, name.charCodeAt(0), name.charCodeAt(length >> 1), name.charCodeAt(length - 1))
  while (names[slot] !== undefined && names[slot] !== name) slot = (slot + 1) & (SLOTS - 1)
  return slot
}

function add(name: string, kind: number): void {
  const slot = slotFor(name)
  if (names[slot] !== undefined) return
  names[slot] = name
  kinds[slot] = kind
  lineStarts[slot] = `\r\n${name}: `
}

/** Every sign that a name may have (RFC 9110 section 5.6.2). */
export const SIGNS = "!#$%&'*+-.^_`|~"

for (const [name, kind] of SPECIAL) add(name, kind)
for (const name of COMMON.split(/\s+/)) add(name, FIELD_KIND.plain)
// Last, so that the others are found at once.
for (const [name] of SPECIAL) {
  const parts = name.split('-')
  if (parts.length === 2) for (const sign of SIGNS) add(parts.join(sign), FIELD_KIND.twin)
}

/**
 * The slot of the name in `bytes` from `start` to `end`, or -1 if it is not one of the common ones. `letters`: what each
 * byte counts as, `TOKEN_LOWER` or `LOWER`.
 */
export function findName(bytes: Uint8Array, start: number, end: number, letters: Uint8Array): number {
  if (start === end) return -1
  const length = end - start
  const middle = letters[bytes[start + (length >> 1)]!]!
  let slot = slotOf(length, letters[bytes[start]!]!, middle, letters[bytes[end - 1]!]!)
  for (;;) {
    const name = names[slot]
    if (name === undefined) return -1
    if (name.length === length && isSame(name, bytes, start, letters)) return slot
    slot = (slot + 1) & (SLOTS - 1)
  }
}

function isSame(name: string, bytes: Uint8Array, start: number, letters: Uint8Array): boolean {
  for (let i = 0; i < name.length; i++) if (letters[bytes[start + i]!] !== name.charCodeAt(i)) return false
  return true
}

export function nameAt(slot: number): string {
  return names[slot]!
}

export function kindAt(slot: number): number {
  return kinds[slot]!
}

/** `\r\n`, the name, a colon and a space. */
export function lineStartAt(slot: number): string {
  return lineStarts[slot]!
}

/** Slot of a lower-case name; -1 for one that is not common (and so not known to be a token). */
export function slotNamed(name: string): number {
  const slot = slotFor(name)
  return names[slot] === undefined ? -1 : slot
}

/** Its kind; undefined for one that is not common. */
export function kindOf(name: string): number | undefined {
  const slot = slotNamed(name)
  return slot < 0 ? undefined : kinds[slot]
}
