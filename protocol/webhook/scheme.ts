/**
 * How senders sign their webhooks: which fields carry the signature, what is hashed before the body, and which fields we write
 * when we sign. Pure: no clock, no file.
 *
 * | scheme | fields | what is signed |
 * |---|---|---|
 * | `github` | `x-hub-signature-256: sha256=HEX` | the body |
 * | `gitea`, `forgejo` | `x-gitea-signature: HEX`, `x-forgejo-signature: HEX` | the body |
 * | `bitbucket` | `x-hub-signature: sha256=HEX` | the body |
 * | `gitlab` | `x-gitlab-token: SECRET` | nothing |
 * | `gitlab-signing`, `standard-webhooks` | `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,BASE64 v1a,BASE64` | `ID.SECONDS.BODY` |
 * | `slack` | `x-slack-request-timestamp`, `x-slack-signature: v0=HEX` | `v0:SECONDS:BODY` |
 * | `stripe` | `stripe-signature: t=SECONDS,v1=HEX` | `SECONDS.BODY` |
 * | `hmac` | a field of your choice | the body |
 * | `bearer` | `authorization: Bearer SECRET` | nothing |
 */
import type { HeaderList } from '../exchange.ts'
import { getAllHeaders, plainNumber } from '../http/headers.ts'

/** How a sender signs, with any deviations from the scheme's defaults. */
export interface WebhookScheme {
  scheme: SchemeName
  /** How far the signed timestamp may be from the time of arrival, either way. Default 300,000 ms (5 min). */
  toleranceMs?: number | undefined
  /** For `hmac` only: the field that carries the signature. */
  header?: string | undefined
  /** For `hmac` only: the text before the digest, such as `sha256=`. Default: none. */
  prefix?: string | undefined
  /** For `hmac` only: the encoding of the digest. Default `hex`. */
  encoding?: 'hex' | 'base64' | undefined
  /** For `hmac` only. Default `sha256`. */
  hash?: 'sha256' | 'sha512' | undefined
}

/** What a request claims about its signature. */
export interface Claim {
  /** Hashed before the body. */
  readonly prefix: string
  /** Digests. One of them has to match. */
  readonly macs: readonly Buffer[]
  /** Ed25519 signatures. One of them has to match. */
  readonly signatures: readonly Buffer[]
  /** A secret that is sent as is. */
  readonly token: string | undefined
  /** Seconds since 1970. Undefined if no timestamp is signed. */
  readonly timestamp: number | undefined
}

/** What goes into a new signature. */
export interface Signing {
  readonly id: string
  /** Seconds since 1970. */
  readonly timestamp: number
}

interface Scheme {
  /** All fields that belong to the scheme. They are replaced when we sign. */
  readonly fields: (options: WebhookScheme) => readonly string[]
  /** Whether it covers the time of sending, so that a receiver that checks it refuses a late delivery. */
  readonly timestamped: boolean
  /** Whether its secret is encoded text of the scheme (`whsec_...`) rather than arbitrary bytes. */
  readonly encodedSecret?: boolean
  /** Whether the secret itself is sent, and nothing is hashed. */
  readonly token?: boolean
  /** The claim, or why there is none. */
  readonly read: (headers: HeaderList, options: WebhookScheme) => Claim | string
  /** What is hashed before the body. */
  readonly prefix: (signing: Signing) => string
  /** The fields that carry `proof`: a digest, a signature, or the secret itself. */
  readonly write: (proof: Buffer, signing: Signing, options: WebhookScheme, isSignature: boolean) => HeaderList
}

const SHA256_BYTES = 32
const ED25519_BYTES = 64
/** Further signatures in one field are ignored. */
const MAX_SIGNATURES = 16
/** The same for Ed25519. A rotation needs two. Anybody can send signatures, and each costs another hash of the whole message per key. */
const MAX_ED25519_SIGNATURES = 2

const nothing = (): string => ''
const fields =
  (...names: string[]) =>
  () =>
    names

function claim(parts: Partial<Claim>): Claim {
  return { prefix: '', macs: [], signatures: [], token: undefined, timestamp: undefined, ...parts }
}

/** The only value of a field, or why it cannot be used. */
function single(headers: HeaderList, name: string): { value: string } | string {
  const values = getAllHeaders(headers, name)
  if (values.length === 1 && values[0] !== '') return { value: values[0]! }
  return values.length > 1 ? `${name} is there ${values.length} times` : `${name} is missing`
}

function readDigest(text: string, encoding: 'hex' | 'base64', bytes: number): Buffer | undefined {
  const form = encoding === 'hex' ? /^[0-9a-fA-F]+$/ : /^[A-Za-z0-9+/]+={0,2}$/
  if (text.length > 2 * ED25519_BYTES || !form.test(text)) return undefined
  const digest = Buffer.from(text, encoding)
  const isWhole = encoding === 'base64' || text.length === 2 * bytes
  return isWhole && digest.length === bytes ? digest : undefined
}

/** A signature over the body alone, in one field. */
function bodyScheme(name: string, prefix: string, more: readonly string[] = []): Scheme {
  return {
    fields: fields(name, ...more),
    timestamped: false,
    read: headers => readBodyClaim(headers, name, prefix, 'hex', SHA256_BYTES),
    prefix: nothing,
    write: proof => [name, prefix + proof.toString('hex')],
  }
}

function readBodyClaim(
  headers: HeaderList,
  name: string,
  prefix: string,
  encoding: 'hex' | 'base64',
  bytes: number,
): Claim | string {
  const found = single(headers, name)
  if (typeof found === 'string') return found
  if (found.value.startsWith('sha1=') && prefix !== 'sha1=') return `${name} is SHA-1, which proves nothing any more`
  const mac = found.value.startsWith(prefix) ? readDigest(found.value.slice(prefix.length), encoding, bytes) : undefined
  return mac === undefined ? `${name} is malformed` : claim({ macs: [mac] })
}

const github = bodyScheme('x-hub-signature-256', 'sha256=', ['x-hub-signature'])

function readGithub(headers: HeaderList, options: WebhookScheme): Claim | string {
  const read = github.read(headers, options)
  const old = typeof read === 'string' && getAllHeaders(headers, 'x-hub-signature-256').length === 0
  return old && getAllHeaders(headers, 'x-hub-signature').length > 0 ? 'signed with SHA-1 alone' : read
}

function readToken(headers: HeaderList): Claim | string {
  const found = single(headers, 'x-gitlab-token')
  return typeof found === 'string' ? found : claim({ token: found.value })
}

function readBearer(headers: HeaderList): Claim | string {
  const found = single(headers, 'authorization')
  if (typeof found === 'string') return found
  const token = /^bearer +([!-~]+)$/i.exec(found.value)?.[1]
  return token === undefined ? 'authorization is no bearer token' : claim({ token })
}

/** Standard Webhooks 1.0.0, "Signature scheme" and "Webhook headers". */
const standard: Scheme = {
  fields: fields('webhook-signature', 'webhook-id', 'webhook-timestamp'),
  timestamped: true,
  encodedSecret: true,
  read: readStandard,
  prefix: ({ id, timestamp }) => `${id}.${timestamp}.`,
  write: (proof, { id, timestamp }, _, isSignature) => [
    ...['webhook-id', id, 'webhook-timestamp', String(timestamp)],
    ...['webhook-signature', `${isSignature ? 'v1a' : 'v1'},${proof.toString('base64')}`],
  ],
}

function readStandard(headers: HeaderList): Claim | string {
  const id = single(headers, 'webhook-id')
  if (typeof id === 'string') return id
  // If the id had a dot in it, the same signature would match another time and another body.
  if (id.value.includes('.')) return 'webhook-id is malformed'
  const sent = readTimestamp(headers, 'webhook-timestamp')
  if (typeof sent === 'string') return sent
  const found = single(headers, 'webhook-signature')
  if (typeof found === 'string') return found
  const macs: Buffer[] = []
  const signatures: Buffer[] = []
  for (const part of found.value.split(' ', MAX_SIGNATURES)) {
    const [version, text = ''] = part.split(',', 2)
    const mac = version === 'v1' ? readDigest(text, 'base64', SHA256_BYTES) : undefined
    const signature = version === 'v1a' ? readDigest(text, 'base64', ED25519_BYTES) : undefined
    if (mac !== undefined) macs.push(mac)
    if (signature !== undefined && signatures.length < MAX_ED25519_SIGNATURES) signatures.push(signature)
  }
  if (macs.length + signatures.length === 0) return 'webhook-signature holds no signature of v1 or v1a'
  return claim({ prefix: `${id.value}.${sent.text}.`, macs, signatures, timestamp: sent.timestamp })
}

function readSlack(headers: HeaderList): Claim | string {
  const sent = readTimestamp(headers, 'x-slack-request-timestamp')
  if (typeof sent === 'string') return sent
  const read = readBodyClaim(headers, 'x-slack-signature', 'v0=', 'hex', SHA256_BYTES)
  if (typeof read === 'string') return read
  return { ...read, prefix: `v0:${sent.text}:`, timestamp: sent.timestamp }
}

function readStripe(headers: HeaderList): Claim | string {
  const found = single(headers, 'stripe-signature')
  if (typeof found === 'string') return found
  const times: string[] = []
  const macs: Buffer[] = []
  for (const part of found.value.split(',', 1 + MAX_SIGNATURES)) {
    const at = part.indexOf('=')
    const [key, text] = [part.slice(0, Math.max(0, at)).trim(), part.slice(at + 1)]
    const mac = key === 'v1' ? readDigest(text, 'hex', SHA256_BYTES) : undefined
    if (key === 't') times.push(text)
    if (mac !== undefined) macs.push(mac)
  }
  const timestamp = times.length === 1 ? plainNumber(times[0]!) : -1
  if (timestamp < 0) return 'stripe-signature has no time'
  if (macs.length === 0) return 'stripe-signature holds no signature of v1'
  return claim({ prefix: `${times[0]}.`, macs, timestamp })
}

/** Returns the text as well, since that is what was signed. */
function readTimestamp(headers: HeaderList, name: string): { text: string; timestamp: number } | string {
  const found = single(headers, name)
  if (typeof found === 'string') return found
  const timestamp = plainNumber(found.value)
  return timestamp < 0 ? `${name} is malformed` : { text: found.value, timestamp }
}

/** All schemes by their names in a route table and on the command line. */
export const SCHEMES = {
  github: { ...github, read: readGithub },
  gitea: bodyScheme('x-gitea-signature', ''),
  forgejo: bodyScheme('x-forgejo-signature', '', ['x-gitea-signature']),
  bitbucket: bodyScheme('x-hub-signature', 'sha256='),
  gitlab: {
    fields: fields('x-gitlab-token'),
    timestamped: false,
    token: true,
    read: readToken,
    prefix: nothing,
    write: proof => ['x-gitlab-token', proof.toString('latin1')],
  },
  'gitlab-signing': standard,
  'standard-webhooks': standard,
  slack: {
    fields: fields('x-slack-signature', 'x-slack-request-timestamp'),
    timestamped: true,
    read: readSlack,
    prefix: ({ timestamp }) => `v0:${timestamp}:`,
    write: (proof, { timestamp }) => [
      ...['x-slack-request-timestamp', String(timestamp)],
      ...['x-slack-signature', `v0=${proof.toString('hex')}`],
    ],
  },
  stripe: {
    fields: fields('stripe-signature'),
    timestamped: true,
    read: readStripe,
    prefix: ({ timestamp }) => `${timestamp}.`,
    write: (proof, { timestamp }) => ['stripe-signature', `t=${timestamp},v1=${proof.toString('hex')}`],
  },
  hmac: {
    fields: options => [options.header!.toLowerCase()],
    timestamped: false,
    read: (headers, options) =>
      readBodyClaim(
        headers,
        options.header!.toLowerCase(),
        options.prefix ?? '',
        options.encoding ?? 'hex',
        options.hash === 'sha512' ? 2 * SHA256_BYTES : SHA256_BYTES,
      ),
    prefix: nothing,
    write: (proof, _, options) => [
      options.header!.toLowerCase(),
      (options.prefix ?? '') + proof.toString(options.encoding ?? 'hex'),
    ],
  },
  bearer: {
    fields: fields('authorization'),
    timestamped: false,
    token: true,
    read: readBearer,
    prefix: nothing,
    write: proof => ['authorization', `Bearer ${proof.toString('latin1')}`],
  },
} as const satisfies Record<string, Scheme>

export type SchemeName = keyof typeof SCHEMES

/** The scheme of that name, under one common type. Throws a TypeError if there is none: clients may announce any name. */
export function schemeOf(name: SchemeName): Scheme {
  if (!Object.hasOwn(SCHEMES, name)) throw new TypeError(`there is no scheme ${name}`)
  return SCHEMES[name]
}

/** Says which member of `options` is wrong and why, or undefined if none is. */
export function schemeProblem(options: WebhookScheme): { member: keyof WebhookScheme; message: string } | undefined {
  const own = ['header', 'prefix', 'encoding', 'hash'] as const
  const foreign = options.scheme === 'hmac' ? undefined : own.find(member => options[member] !== undefined)
  if (foreign !== undefined) return { member: foreign, message: 'only the scheme hmac has it' }
  if (options.scheme === 'hmac' && options.header === undefined) {
    return { member: 'header', message: 'is missing: the scheme hmac needs the name of the field' }
  }
  if (options.header !== undefined && !/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/.test(options.header)) {
    return { member: 'header', message: 'is no header name' }
  }
  if (/[^!-~]/.test(options.prefix ?? '')) return { member: 'prefix', message: 'must be ASCII without spaces' }
  if (options.toleranceMs !== undefined && !schemeOf(options.scheme).timestamped) {
    return { member: 'toleranceMs', message: `the scheme ${options.scheme} signs no timestamp` }
  }
  return undefined
}

/** The fields of all schemes whose signatures cover the time, or of all others. `hmac` has none of its own. */
export function schemeFields(timestamped: boolean): readonly string[] {
  const schemes = Object.entries<Scheme>(SCHEMES).filter(([name]) => name !== 'hmac')
  return schemes.flatMap(([name, scheme]) =>
    scheme.timestamped === timestamped ? scheme.fields({ scheme: name as SchemeName }) : [],
  )
}

const TIMESTAMPED: ReadonlySet<string> = new Set(schemeFields(true))

/** Whether the signature of the request, if it has one, covers the time of sending, so that a late delivery is refused. */
export function isTimestamped(headers: HeaderList): boolean {
  for (let i = 0; i < headers.length; i += 2) if (TIMESTAMPED.has(headers[i]!)) return true
  return false
}
