/** Removes secrets from what goes into an archive. */
import { Redactor } from '../../client/inspect/redactor.ts'
import { PRIVATE_KEY } from '../../protocol/base/held-text.ts'

/** The same text as in the inspector. */
const GONE = '[redacted]'
/** A header field in a text. The prefix before the name is bounded, or each letter of a long run would start a search. */
const FIELD =
  /((?:proxy-)?authorization|(?:set-)?cookie|api-?key|-(?:token|secret))(["']?\s{0,16}[:=]\s{0,16})[^\r\n]+/gi
const ASSIGNED =
  /((?:token|credentials?)\s{0,16}=\s{0,16}|(?:passw(?:or)?d|secret|_key)\s{0,16}[:=]\s{0,16})[^\s,;&]+/gi
const SCHEME = /\b(basic|bearer|digest|negotiate) {1,16}[\w.~+/=-]{6,}/gi
const MEMBER = /(?:passw(?:or)?d|secret|token|authorization|cookie|api[-_]?key|private[-_]?key)$/i

/** Known secrets, anywhere. JSON values remain valid JSON. */
export function withoutSecrets<Value>(value: Value, secrets: readonly string[]): Value {
  return mapTexts(value, text => secrets.reduce((left, secret) => left.replaceAll(secret, GONE), text)) as Value
}

/** The lines of a log without private keys, each of which may take several lines. */
export function withoutKeys(lines: readonly string[]): string[] {
  return lines.join('\n').replaceAll(PRIVATE_KEY, GONE).split('\n')
}

/** Unknown secrets, recognised by their form and by the name before them. */
export class Cleaner {
  readonly #redactor = new Redactor()

  value(value: unknown): unknown {
    return mapTexts(value, (text, member) => (MEMBER.test(member) ? GONE : this.text(text)))
  }

  /** Cleans a log: JSON lines, or any text. */
  line(line: string): string {
    try {
      return JSON.stringify(this.value(JSON.parse(line)))
    } catch {
      return this.text(line)
    }
  }

  text(text: string): string {
    const plain = text.replaceAll(PRIVATE_KEY, GONE).replaceAll(FIELD, `$1$2${GONE}`).replaceAll(ASSIGNED, `$1${GONE}`)
    return this.#redactor.text(plain.replaceAll(SCHEME, `$1 ${GONE}`))
  }
}

/** A copy with every string replaced, including member names. `member` is the name that a string is the value of. */
function mapTexts(value: unknown, change: (text: string, member: string) => string, member = ''): unknown {
  if (typeof value === 'string') return change(value, member)
  if (Array.isArray(value)) return value.map(one => mapTexts(one, change, member))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [change(name, ''), mapTexts(one, change, name)]))
}
