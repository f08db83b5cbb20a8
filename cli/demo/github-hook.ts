/** How Argo Events' handler for GitHub treats a delivery: the checks and error texts of go-github, in the same order. */
import { createHmac, timingSafeEqual } from 'node:crypto'

const HASHES: Record<string, string> = { sha1: 'sha1', sha256: 'sha256', sha512: 'sha512' }
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]*/
const PARAMETER = /^\s*;\s*[!#$%&'*+\-.^_`|~0-9A-Za-z]+\s*=\s*(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+|"(?:[^"\\]|\\.)*")/

/** A refusal, in the handler's words. */
export class HookError extends Error {}

/** The media type, or why there is none. */
export function mediaType(field: string): string {
  const end = field.indexOf(';')
  const text = (end < 0 ? field : field.slice(0, end)).trim().toLowerCase()
  const type = TOKEN.exec(text)![0]
  if (type === '') throw new HookError('mime: no media type')
  const rest = text.slice(type.length)
  if (rest !== '') {
    if (rest[0] !== '/') throw new HookError('mime: expected slash after first token')
    const subtype = TOKEN.exec(rest.slice(1))![0]
    if (subtype === '') throw new HookError('mime: expected token after slash')
    if (rest.length > subtype.length + 1) throw new HookError('mime: unexpected content after media subtype')
  }
  for (let more = end < 0 ? '' : field.slice(end); !/^[\s;]*$/.test(more); ) {
    const parameter = PARAMETER.exec(more)
    if (parameter === null) throw new HookError('mime: invalid media parameter')
    more = more.slice(parameter[0].length)
  }
  if (text !== 'application/json' && text !== 'application/x-www-form-urlencoded') {
    throw new HookError(`webhook request has unsupported Content-Type ${JSON.stringify(text)}`)
  }
  return text
}

/** Throws unless `body` is signed and holds a JSON object. */
export function checkDelivery(type: string, body: Buffer, signature: string, secret: string): void {
  const payload = type === 'application/json' ? body.toString() : formPayload(body.toString())
  checkSignature(body, signature, secret)
  checkObject(payload)
}

function formPayload(form: string): string {
  const bad = /%(?![0-9A-Fa-f]{2}).{0,2}/.exec(form)
  if (bad !== null) throw new HookError(`invalid URL escape ${JSON.stringify(bad[0])}`)
  if (form.includes(';')) throw new HookError('invalid semicolon separator in query')
  return new URLSearchParams(form).get('payload') ?? ''
}

function checkSignature(body: Buffer, signature: string, secret: string): void {
  if (signature === '') throw new HookError('missing signature')
  const at = signature.indexOf('=')
  if (at < 0) throw new HookError(`error parsing signature ${JSON.stringify(signature)}`)
  const [prefix, digits] = [signature.slice(0, at), signature.slice(at + 1)]
  const hash = Object.hasOwn(HASHES, prefix) ? HASHES[prefix]! : undefined
  if (hash === undefined) throw new HookError(`unknown hash type prefix: ${JSON.stringify(prefix)}`)
  const problem = hexProblem(digits)
  if (problem !== undefined) throw new HookError(`error decoding signature ${JSON.stringify(signature)}: ${problem}`)
  const given = Buffer.from(digits, 'hex')
  const expected = createHmac(hash, secret).update(body).digest()
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
    throw new HookError('payload signature check failed')
  }
}

function hexProblem(digits: string): string | undefined {
  const bad = /[^0-9A-Fa-f]/u.exec(digits)
  if (bad !== null) {
    const code = bad[0].codePointAt(0)!
    return `encoding/hex: invalid byte: U+${code.toString(16).toUpperCase().padStart(4, '0')} '${bad[0]}'`
  }
  return digits.length % 2 === 1 ? 'encoding/hex: odd length hex string' : undefined
}

/** For invalid JSON, the error names only the first character. */
function checkObject(text: string): void {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    const first = /[^\s]/u.exec(text)?.[0]
    if (first === undefined) throw new HookError('unexpected end of JSON input')
    throw new HookError(`invalid character '${first}' looking for beginning of value`)
  }
  // The handler writes to a nil map and panics, which cuts the connection.
  if (value === null) throw new Error('null')
  const kind = Array.isArray(value) ? 'array' : typeof value
  if (kind === 'object') return
  const name = kind === 'boolean' ? 'bool' : kind
  throw new HookError(`json: cannot unmarshal ${name} into Go value of type map[string]interface {}`)
}
