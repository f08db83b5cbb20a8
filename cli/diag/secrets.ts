/** Collects everything that must not be anywhere in an archive: contents of secret files, and secrets in settings and variables. */
import { readPlain } from '../../protocol/base/plain-file.ts'
import { secretFilesOf } from '../../router/table-file.ts'
import type { Origins } from '../config/load.ts'
import { SECRET_FILE, type Settings } from '../config/setting.ts'

type Environment = Readonly<Record<string, string | undefined>>

/** Shorter secrets could be ordinary words. */
const MIN_LENGTH = 6
const MAX_FILE_BYTES = 64 * 1024
const SECRET_VARIABLE =
  /SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|COOKIE|DSN|(?:^|_)(?:PASS|PWD|KEYS?|AUTH|HEADERS)(?:_|$)/i
/** Variables that are not secrets themselves: paths of secrets, our own settings, and the shell's folder. */
const NO_SECRET = /_(?:FILE|PATH|DIR|URL|SOCK)$|^SALLYPORT_|^PWD$/

/** The secrets as they are, and as written in JSON and in a URL. */
export async function secretsOf(
  settings: Settings,
  { origins }: Pick<Origins, 'origins'>,
  environment: Environment,
): Promise<string[]> {
  const found: string[] = []
  for (const [name, { raw }] of origins) {
    const text = String(raw)
    if (SECRET_FILE.test(name)) found.push(...(await linesOf(text)))
    else if (name === 'routes') for (const file of await secretFilesOf(text)) found.push(...(await linesOf(file)))
    else if (settings[name]?.secret) found.push(...text.split(/[\s"'=]+/))
    found.push(...credentialsOf(text))
  }
  for (const [name, value = ''] of Object.entries(environment)) {
    if (SECRET_VARIABLE.test(name) && !NO_SECRET.test(name)) found.push(value, ...fieldsOf(name, value))
    found.push(...credentialsOf(value))
  }
  const long = found.map(text => text.trim()).filter(text => text.length >= MIN_LENGTH)
  // Longest first, so that a secret that begins with another one is replaced in full.
  return [...new Set(long.flatMap(formsOf))].sort((a, b) => b.length - a.length)
}

function formsOf(text: string): string[] {
  return [text, JSON.stringify(text).slice(1, -1), encodeURIComponent(text.toWellFormed())]
}

/** Values of `OTEL_EXPORTER_OTLP_HEADERS` (`name=value,name=value`, percent-encoded); for `Bearer ...`, the last word. */
function fieldsOf(name: string, value: string): string[] {
  if (!/HEADERS$/i.test(name)) return []
  return value.split(',').flatMap(pair => {
    const value = decoded(pair.slice(pair.indexOf('=') + 1))
    return [value, value.split(' ').at(-1)!]
  })
}

async function linesOf(file: string): Promise<string[]> {
  const text = await readPlain(file, MAX_FILE_BYTES).then(String, () => '')
  return text.split('\n').filter(line => !line.startsWith('-----'))
}

/** `user:password@` of URLs, even without a scheme, both as written and decoded. */
function credentialsOf(text: string): string[] {
  return Array.from(text.matchAll(/(?:^(?=[^@/]*:)|:\/\/)([^\s/]*)@/g), ([, pair]) => pair!).flatMap(pair => {
    const password = pair.slice(pair.indexOf(':') + 1)
    return [pair, password, decoded(password)]
  })
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
