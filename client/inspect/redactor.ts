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
const USER_INFO = /(?<=:|^)\/\/([^\s/?#"<>\\]+)@/g
/** What may also be a path. */
const MAYBE_USER_INFO = /\/\/([^\s/?#"<>\\]+)@/g
const BEARER = /\b(bearer +)([\w.~+/-]{16,}=*)/gi
const BASIC = /\b(basic +)([\w+/-]{4,}=*)/gi
/**
 * A parameter in any text: also after `#`, where OAuth puts tokens, and at the start of a line, as in a form. Spaces may be around its name.
 * Where its value ends can only be guessed, unlike in a URL that is known to be one.
 */
const PARAMETER =
  /((?:\\u0026|(?:^|[?&;#]) {0,16}|[^\w%+.[\]-])([\w%+.[\]-]{1,128})(?:=| {1,16}=(?!=)|\\u003d))((?:[^&\s"'<>#\\]|'(?=\w))*[^&\s"'<>#\\;,])/gi
/**
 * What comes before a value in quotation marks, in a log, HTML or code: `password="x y"`, `password: 'x'`. In a text that the same mark
 * began, it ends that text.
 */
const QUOTED =
  /(^|[^\w%+.[\]-])([\w%+.[\]-]{1,128})(?:\\{0,63}["'])?\s{0,16}(?::?=>?|:)\s{0,16}(?!\\{0,63}\1(?<=["']))(\\{0,63}["']|&(?:quot|#3[49]);)/g
/** Text without a sign that ends a parameter. Something in it may be encoded. */
const RUN = /(?:[^&\s"'<>\\]|'(?=\w))+/g
/** A member in text that is not JSON, or is quoted JSON: `\"token\": \"...\"`. The lookbehind keeps a long run of backslashes from starting a search at each. */
const MEMBER =
  /(?<!\\)(\\{0,63}["'])([\w$.-]{1,64})(\1\s{0,16}(?:[:=]|=>)\s{0,16})(?:(\1)((?:\\{3}.|\\.|.)*?)(\1|$)|(-?\d[\w.+-]*))/gs
const SCHEME = /^((?:basic|bearer|digest|negotiate|token|aws4-hmac-sha256) +)(.+)$/is
const LITERAL = /[^\s,\]}"]*/y
const PLAIN_VALUE = /^(?:null|true|false|"")?$/
/** The name of a form part. It also matches text in a file name that looks like one. */
const PART_NAME = /\bname(?:\*=[\w-]*'[\w-]*'| {0,16}=) {0,16}(?:"((?:\\.|[^"\\\r\n])+)|([^"\r\n;]+))/gi
const PART_TYPE = /^content-type:[ \t]*(.+)/im
const PART_ENCODING = /^content-transfer-encoding:[ \t]*(?:base64|quoted-printable)/im
/** A line of a head in a text, or of YAML. */
const FIELD = /^(([\w-]{1,64}):[ \t]*)(\S.*)/gm
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
    if (isSecretField(name)) {
      const [, scheme = '', secret = value] = SCHEME.exec(value) ?? []
      return value === '' ? '' : scheme + this.tag(secret)
    }
    const shown = value.replace(SUBPROTOCOL_TOKEN, (_, head: string, token: string) => head + this.tag(token))
    // As in `link`.
    if (!shown.startsWith('<')) return this.#value(shown)
    return this.text(shown.replaceAll(/<([^<>]*)/g, (_, url: string) => `<${this.#value(url)}`))
  }

  path(path: string): string {
    this.#tags = 0
    const end = path.search(/[?#]/)
    if (end < 0) return this.#whole(path, 0)
    return this.#whole(path.slice(0, end), 0) + path[end]! + this.#whole(path.slice(end + 1), 0)
  }

  /** Redacts according to the content type. Undefined if the body cannot be searched. */
  body(text: string, contentType: string): string | undefined {
    this.#tags = 0
    // For UTF-16 and the like: if anything would be redacted without the NULs, nothing is shown at all.
    const letters = text.includes('\0') ? text.replaceAll('\0', '') : text
    if (letters !== text && this.#typed(letters, contentType) !== letters) return undefined
    return letters === text ? this.#typed(text, contentType) : text
  }

  #typed(text: string, contentType: string, depth = 0): string {
    if (/^application\/x-www-form-urlencoded\b/i.test(contentType)) return this.#whole(text, depth)
    const boundary = /^multipart\//i.test(contentType) ? boundaryOf(text, contentType) : undefined
    if (boundary !== undefined) return this.#parts(text, boundary, depth)
    return depth === 0 ? this.text(text) : this.#value(text, depth)
  }

  #parts(text: string, boundary: string, depth: number): string {
    if (depth > MAX_DEPTH) return this.tag(text)
    const parts = text.split(boundary).map(part => {
      const head = /^(.*?)(\r?\n\r?\n)/s.exec(part)
      if (head === null) return this.text(part)
      const names = Array.from(head[1]!.matchAll(PART_NAME), ([, quoted, name]) => quoted ?? name!)
      const value = part.slice(head[0].length).replace(/\r?\n$/, '')
      const end = part.slice(head[0].length + value.length)
      const isSecret = PART_ENCODING.test(head[1]!) || names.some(name => isSecretMember(plainest(name)))
      const [, type = ''] = PART_TYPE.exec(head[1]!) ?? []
      const clean = isSecret && value !== '' ? this.tag(value) : this.#typed(value, type, depth + 1)
      return this.text(head[0]) + clean + end
    })
    return parts.join(boundary)
  }

  /** For a field, a member or a part. Without a space before its first `=`, it counts as a URL or a query as a whole. */
  #value(text: string, depth = 0): string {
    return /^\s*\S*(?:=|$)/.test(text) ? this.#whole(text, depth) : this.text(text, depth)
  }

  /** Redacts members, parameters and tokens anywhere in the text. */
  text(text: string, depth = 0): string {
    // Each string of JSON was read alone, and no mark in it ends a value outside.
    return this.#redacted(text, depth, members =>
      this.#parameters(isJson(members) ? members : this.#quotedValues(members), depth),
    )
  }

  /** For what is a URL, a query, a form, or JSON as a whole. */
  #whole(text: string, depth: number): string {
    if (isJson(text)) return this.text(text, depth)
    return this.#redacted(text, depth, members => members.replaceAll(/[^&]+/g, pair => this.#pair(pair, depth)))
  }

  #redacted(text: string, depth: number, parameters: (text: string) => string): string {
    if (text.length < 3) return text
    if (depth > MAX_DEPTH && /["'=%]/.test(text)) return this.tag(text)
    const hideUser = (_: string, user: string) => `//${this.tag(user)}@`
    const urls = text.replaceAll(USER_INFO, hideUser)
    const members = (urls.includes('"') ? this.#json(urls, depth) : urls).replaceAll(MEMBER, (...found: string[]) =>
      this.#member(found),
    )
    return parameters(members)
      .replaceAll(MAYBE_USER_INFO, hideUser)
      .replaceAll(FIELD, (all, start: string, name: string, value: string) =>
        isSecretField(name) ? start + this.#field(name, value) : all,
      )
      .replaceAll(BEARER, (_, scheme: string, token: string) => scheme + this.tag(token))
      .replaceAll(BASIC, (all, scheme: string, token: string) => (isBasic(token) ? scheme + this.tag(token) : all))
      .replaceAll(JWT, token => this.tag(token))
  }

  /** What is between two `&`. Everything behind the `=` of a secret name is part of the secret. */
  #pair(pair: string, depth: number): string {
    const end = secretStart(pair)
    const name = pair.slice(0, pair.indexOf('=') + 1 || end)
    const clean = this.#encoded(name, depth)
    if (clean !== name) return clean + this.#hidden(pair.slice(name.length))
    return name + this.#encoded(pair.slice(name.length, end), depth) + this.#hidden(pair.slice(end))
  }

  #hidden(text: string): string {
    return text === '' ? '' : this.tag(decoded(text))
  }

  #encoded(text: string, depth: number): string {
    const plain = decoded(text)
    if (plain === text) return text
    const clean = this.#whole(plain, depth + 1)
    return clean === plain ? text : encoded(clean)
  }

  #parameters(text: string, depth: number): string {
    return text
      .replaceAll(PARAMETER, (_, start: string, name: string, value: string) => {
        // In a sentence or in code, `code` and `state` are no sign of a secret.
        const isSecret = /^[^\w%+.[\]?&;#\r\n"'\\-]/.test(start) ? isSecretField : isSecretMember
        const end = isSecret(plainest(name)) ? 0 : secretStart(value)
        return start + value.slice(0, end) + this.#hidden(value.slice(end))
      })
      .replaceAll(RUN, run => (/%u?[0-9a-f]{2}/i.test(run) ? this.#pair(run, depth) : run))
  }

  #quotedValues(text: string): string {
    let out = ''
    let from = 0
    for (const { 0: all, 1: before, 2: name, 3: mark, index } of text.matchAll(QUOTED)) {
      const isSecret = /^[?&;#\r\n"']?$/.test(before!) ? isSecretMember : isSecretField
      if (index < from || !isSecret(plainest(name!))) continue
      const start = index + all.length
      // As in `href="/?token="`, the mark may end a URL.
      if (/[?&#]/.test(before!) && !/^\w/.test(text.slice(start, start + 1))) continue
      const end = quoteEnd(text, start, mark!)
      if (end === start) continue
      out += text.slice(from, start) + this.tag(text.slice(start, end))
      from = end
    }
    return from === 0 ? text : out + text.slice(from)
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
        const clean = this.#value(string, depth + 1)
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

/** Where the value of the first secret parameter begins, or the end. */
function secretStart(pair: string): number {
  let from = 0
  for (let at = pair.indexOf('='); at >= 0; at = pair.indexOf('=', from)) {
    const raw = pair.slice(from, at)
    from = at + 1
    if (!/[a-z%]/i.test(raw)) continue
    const name = plainest(raw)
    const word = name.split(/[^\w$.[\]-]+/).findLast(each => /[a-z]/i.test(each)) ?? ''
    if (isSecretMember(word) || isSecretMember(name.split(/[?&;#/]/).at(-1)!)) return at + 1
  }
  return pair.length
}

function isJson(text: string): boolean {
  // An exception takes long.
  if (!/^\s*(?:".*"|\[.*\]|\{.*\})\s*$/s.test(text)) return false
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** As the content type names it or, where that is missing or wrong, as the first part begins. */
function boundaryOf(text: string, contentType: string): string | undefined {
  const [, quoted, plain] = /\bboundary\s*=\s*(?:"([^"]+)|([^\s";,]+))/i.exec(contentType) ?? []
  const named = quoted ?? plain
  return named !== undefined && text.includes(`--${named}`) ? `--${named}` : /^--.*\S/m.exec(text)?.[0]
}

/** Whether it decodes to `user:password`. */
function isBasic(token: string): boolean {
  return /^[\x20-\x7e]*:/.test(Buffer.from(token, 'base64').toString('latin1'))
}

/** Whether this is the code in an answer of our own. It is no secret: docs/errors.md lists all. */
function isOwnCode(name: string, value: string): boolean {
  return name === 'code' && Object.hasOwn(ERRORS, value)
}

function decoded(text: string): string {
  return text
    .replaceAll('+', ' ')
    .replaceAll(/%(?:u([0-9a-f]{4})|([0-9a-f]{2}))/gi, (_, wide: string | undefined, hex: string) =>
      String.fromCharCode(Number.parseInt(wide ?? hex, 16)),
    )
}

/** A name, however often it is encoded. */
function plainest(name: string): string {
  let plain = name
  for (let depth = 0; depth <= MAX_DEPTH && /[%+]/.test(plain); depth++) plain = decoded(plain)
  return plain
}

/** The tags stay readable. */
function encoded(text: string): string {
  return text.replaceAll(/[^\w.~:/[\]-]/g, char => {
    const hex = char.charCodeAt(0).toString(16).toUpperCase()
    return hex.length > 2 ? `%u${hex.padStart(4, '0')}` : `%${hex.padStart(2, '0')}`
  })
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

/** Where the value that begins at `start` ends. A mark before a letter, or behind ` name=`, is not its end. */
function quoteEnd(text: string, start: number, mark: string): number {
  for (let at = start; at < text.length; at++) {
    if (text.startsWith(mark, at) && !/^\w/.test(text.slice(at + mark.length, at + mark.length + 1))) {
      if (!/\s[\w.-]+=$/.test(text.slice(Math.max(start, at - 64), at))) return at
    }
    // What is escaped twice has three before it.
    if (text[at] === '\\') at += text.startsWith('\\\\\\', at) ? 3 : 1
  }
  return text.length
}

/** The index after the value that begins at `at`. */
function valueEnd(text: string, at: number): number {
  if (text[at] === '"') return stringEnd(text, at)
  if (text[at] !== '{' && text[at] !== '[') {
    LITERAL.lastIndex = at
    LITERAL.test(text)
    return LITERAL.lastIndex
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
