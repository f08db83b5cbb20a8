/**
 * Replaces each secret with a keyed tag before anything is kept. Text is latin1, one character per byte, so that everything else
 * stays the same byte for byte.
 */
import { createHmac, randomBytes } from 'node:crypto'
import { ERRORS } from '../../protocol/base/errors.ts'
import type { HeaderList } from '../../protocol/exchange.ts'
import { isSecretField, isSecretMember } from './secret-names.ts'

/** How deep to look into JSON inside JSON strings, and URLs inside URLs. */
const MAX_DEPTH = 4

/** Most tags per body, head or path, since hashing very many values would take long. All further tags look the same. */
const MAX_TAGS = 500
const TAG = /^\[redacted(?::[0-9a-f]{12})?\]$/
/** `eyJ` is `{"` in base64url. The last part may be missing, because a kept body may end anywhere. */
const JWT = /eyJ[\w-]{4,}(?:\.[\w-]*){0,4}/g
const USER_INFO = /([a-z][a-z0-9+.-]{0,20}:\/\/)([^\s/?#"'<>\\]{1,1024})@/gi
const BEARER = /\b(bearer +)([\w.~+/-]{16,}=*)/gi
/** The name of a parameter in any text, also after `#`, where OAuth puts tokens, and at the start, as in a form. Spaces may be around it. */
const PARAMETER = /(?:^|[?&;#]) {0,16}([\w%+.[\]-]{1,128}) {0,16}=/g
const VALUE = /[^&\s"'<>#\\;,]+/y
/** Behind `;` or `,`, the rest of a secret may follow. */
const SECRET_VALUE = /[^&\s"'<>#\\]*[^&\s"'<>#\\;,]/y
/** A member in text that is not JSON, or is quoted JSON: `\"token\": \"...\"`. The lookbehind keeps a long run of backslashes from starting a search at each. */
const MEMBER = /(?<!\\)(\\{0,63}["'])([\w$.-]{1,64})(\1\s{0,16}[:=]\s{0,16})(?:(\1)(.*?)(\1|$)|(-?\d[\w.+-]{0,511}))/gs
const SCHEME = /^((?:basic|bearer|digest|negotiate|token|aws4-hmac-sha256) +)(.+)$/is
const PLAIN_VALUE = /^(?:null|true|false|"")?$/
/** The name of a form part. It also matches text in a file name that looks like one. */
const PART_NAME = /\bname(?:\*=[\w-]*'[\w-]*'|=)"?([^"\r\n;]+)/gi
const SUBPROTOCOL_TOKEN = /(bearer\.authorization\.[\w.]+\.)([\w-]+)/gi

/** Each inspector has one. Equal values get equal tags, and without the key nobody can tell a value from its tag. */
export class Redactor {
  readonly #key = randomBytes(32)
  #tags = 0

  tag(value: string): string {
    if (TAG.test(value)) return value
    if (++this.#tags > MAX_TAGS) return '[redacted]'
    return `[redacted:${createHmac('sha256', this.#key).update(value, 'latin1').digest('hex').slice(0, 12)}]`
  }

  /** Returns a redacted copy. */
  fields(headers: HeaderList): HeaderList {
    this.#tags = 0
    return headers.map((text, at) => (at % 2 === 0 ? this.text(text) : this.#field(headers[at - 1]!, text)))
  }

  #field(name: string, value: string): string {
    if (!isSecretField(name)) {
      return this.text(value.replace(SUBPROTOCOL_TOKEN, (_, head: string, token: string) => head + this.tag(token)))
    }
    const [, scheme = '', secret = value] = SCHEME.exec(value) ?? []
    return value === '' ? '' : scheme + this.tag(secret)
  }

  path(path: string): string {
    this.#tags = 0
    const query = path.indexOf('?')
    if (query < 0) return this.text(path)
    return `${this.text(path.slice(0, query))}?${this.form(path.slice(query + 1))}`
  }

  /** Redacts names and values as in a query. Behind `;`, there may be another parameter, or the rest of a secret. */
  form(text: string, depth = 0): string {
    return text.replaceAll(/[^&]+/g, pairs => {
      let at = 0
      for (const part of pairs.split(';')) {
        if (isSecretPair(part)) {
          const value = at + part.indexOf('=') + 1
          return pairs.slice(0, value) + (value === pairs.length ? '' : this.tag(decoded(pairs.slice(value))))
        }
        const end = at + part.length
        const clean = this.#pair(part, depth)
        if (clean !== part) return pairs.slice(0, at) + clean + this.#rest(pairs.slice(end))
        at = end + 1
      }
      return pairs
    })
  }

  /** What follows a value in which a secret was found: nothing, or `;` or `,` and what may be the rest of the secret. */
  #rest(text: string): string {
    return text.length < 2 ? text : text[0] + this.tag(decoded(text.slice(1)))
  }

  #pair(text: string, depth: number): string {
    const [name, ...values] = text.split('=')
    if (values.length === 0) return this.#encoded(text, depth)
    return `${this.#encoded(name!, depth)}=${this.#encoded(values.join('='), depth)}`
  }

  #encoded(value: string, depth: number): string {
    const plain = decoded(value)
    const isDeeper = plain !== value && plain.includes('%') && depth < MAX_DEPTH
    const clean = isDeeper ? this.#encoded(plain, depth + 1) : this.text(plain, depth + 1)
    if (clean === plain) return value
    return plain === value ? clean : encodeURIComponent(clean)
  }

  /** Redacts according to the content type. Undefined if the body cannot be searched. */
  body(text: string, contentType: string): string | undefined {
    this.#tags = 0
    // For UTF-16 and the like: if anything would be redacted without the NULs, nothing is shown at all.
    const letters = text.includes('\0') ? text.replaceAll('\0', '') : text
    if (letters !== text && this.#typed(letters, contentType) !== letters) return undefined
    return letters === text ? this.#typed(text, contentType) : text
  }

  #typed(text: string, contentType: string): string {
    if (/^application\/x-www-form-urlencoded\b/i.test(contentType)) return this.text(this.form(text))
    const [, boundary] = /^multipart\/.*\bboundary="?([^";,\s]+)/i.exec(contentType) ?? []
    return boundary === undefined ? this.text(text) : this.#parts(text, `--${boundary}`)
  }

  #parts(text: string, boundary: string): string {
    const parts = text.split(boundary).map(part => {
      const head = /^(.*?)(\r?\n\r?\n)/s.exec(part)
      if (head === null) return this.text(part)
      const names = Array.from(head[1]!.matchAll(PART_NAME), ([, name]) => name!)
      const value = part.slice(head[0].length).replace(/\r?\n$/, '')
      const end = part.slice(head[0].length + value.length)
      const isSecret = value !== '' && names.some(isSecretMember)
      return this.text(head[0]) + (isSecret ? this.tag(value) : this.text(value)) + end
    })
    return parts.join(boundary)
  }

  /** Redacts members, parameters and tokens anywhere in the text. */
  text(text: string, depth = 0): string {
    if (text.length < 3) return text
    if (depth > MAX_DEPTH && /["'=]/.test(text)) return this.tag(text)
    const members = this.#urls(text.includes('"') ? this.#json(text, depth) : text).replaceAll(
      MEMBER,
      (...found: string[]) => this.#member(found),
    )
    return this.#parameters(members, depth)
      .replaceAll(BEARER, (_, scheme: string, token: string) => scheme + this.tag(token))
      .replaceAll(JWT, token => this.tag(token))
  }

  /** Redacts `user:password@` in URLs. */
  #urls(text: string): string {
    if (!text.includes('://')) return text
    return text.replaceAll(USER_INFO, (_, scheme: string, user: string) => `${scheme}${this.tag(user)}@`)
  }

  #parameters(text: string, depth: number): string {
    let out = ''
    let from = 0
    for (let at = 0; ; ) {
      PARAMETER.lastIndex = at
      const found = PARAMETER.exec(text)
      if (found === null) return out + text.slice(from)
      const start = found.index + found[0].length
      const isSecret = isSecretMember(decoded(found[1]!))
      const pattern = isSecret ? SECRET_VALUE : VALUE
      pattern.lastIndex = start
      const [value = ''] = pattern.exec(text) ?? []
      at = start + value.length
      const clean = isSecret ? this.#secretParameter(value) : /[%=]/.test(value) ? this.#encoded(value, depth) : value
      if (clean === value) continue
      out += text.slice(from, start) + clean
      if (!isSecret) {
        SECRET_VALUE.lastIndex = at
        const [rest = ''] = SECRET_VALUE.exec(text) ?? []
        out += this.#rest(rest)
        at += rest.length
      }
      from = at
    }
  }

  #secretParameter(value: string): string {
    return value === '' || value.startsWith('[redacted') ? value : this.tag(decoded(value))
  }

  #member([all, quote, name, between, open, text, close, number]: string[]): string {
    const value = text ?? number
    if (value === undefined || value === '' || !isSecretMember(name!) || isOwnCode(name!, value)) return all!
    return `${quote}${name}${between}${open ?? ''}${this.tag(value)}${close ?? ''}`
  }

  /** Leaves text that is not JSON as it is. JSON that is cut off or broken is read as far as possible. */
  #json(text: string, depth: number): string {
    let out = ''
    let from = 0
    for (let at = text.indexOf('"'); at >= 0; ) {
      let end = stringEnd(text, at)
      const string = unquoted(text.slice(at, end))
      const colon = behindSpace(text, end)
      if (text[colon] !== ':') {
        const clean = this.text(string, depth + 1)
        if (clean !== string) {
          out += text.slice(from, at) + quoted(clean)
          from = end
        }
      } else if (isSecretMember(string)) {
        const start = behindSpace(text, colon + 1)
        end = valueEnd(text, start)
        const raw = text.slice(start, end)
        const value = raw.startsWith('"') ? unquoted(raw) : raw
        if (!PLAIN_VALUE.test(raw) && !isOwnCode(string, value)) {
          out += text.slice(from, start) + quoted(this.tag(value))
          from = end
        }
      }
      at = text.indexOf('"', end)
    }
    return from === 0 ? text : out + text.slice(from)
  }
}

function isSecretPair(text: string): boolean {
  const end = text.indexOf('=')
  return end > 0 && isSecretMember(decoded(text.slice(0, end)))
}

/** Whether this is the code in an answer of our own. It is no secret: docs/errors.md lists all. */
function isOwnCode(name: string, value: string): boolean {
  return name === 'code' && Object.hasOwn(ERRORS, value)
}

function decoded(text: string): string {
  const spaced = text.replaceAll('+', ' ')
  return spaced.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
}

/** The index after the string that begins at `at`. */
function stringEnd(text: string, at: number): number {
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0
    while (text[quote - 1 - slashes] === '\\') slashes++
    if (slashes % 2 === 0) return quote + 1
  }
  return text.length
}

/** The index after the value that begins at `at`. */
function valueEnd(text: string, at: number): number {
  if (text[at] === '"') return stringEnd(text, at)
  if (text[at] !== '{' && text[at] !== '[') {
    const rest = text.slice(at, at + 512)
    return at + (/^[^\s,\]}"]*/.exec(rest)?.[0].length ?? 0)
  }
  let depth = 0
  for (let i = at; i < text.length; i++) {
    const char = text[i]!
    if (char === '"') i = stringEnd(text, i) - 1
    else if (char === '{' || char === '[') depth++
    else if ((char === '}' || char === ']') && --depth === 0) return i + 1
  }
  return text.length
}

function behindSpace(text: string, at: number): number {
  let i = at
  while (i < text.length && /\s/.test(text[i]!)) i++
  return i
}

function unquoted(text: string): string {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'string') return value
  } catch {
    // Cut off, or with control characters.
  }
  const inner = text.slice(1, text.length > 1 && text.endsWith('"') ? -1 : undefined)
  return inner.replaceAll(/\\(?:u([0-9a-f]{4})|(.))/gis, (_, hex: string | undefined, char: string) =>
    hex === undefined ? char : String.fromCharCode(Number.parseInt(hex, 16)),
  )
}

/** Quotes a string so that every character stays below 256. */
function quoted(text: string): string {
  return JSON.stringify(text).replaceAll(
    /[^\0-\xff]/g,
    char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
