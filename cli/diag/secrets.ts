/** What must be nowhere in an archive, wherever it turns up: what files of secrets hold, and what settings and variables do. */
import { isSecretMember } from '../../client/inspect/secret-names.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Loaded } from '../config/load.ts'
import { SECRET_FILE, type Settings } from '../config/setting.ts'

type Environment = Readonly<Record<string, string | undefined>>

/** What is shorter is a word of many texts. */
const MIN_LENGTH = 6
const MAX_FILE_BYTES = 64 * 1024
/** Variables that name the place of a secret. */
const PLACE = /_(?:FILE|PATH|DIR|URL)$|^SALLYPORT_/

export async function secretsOf(
  settings: Settings,
  { origins }: Pick<Loaded<Settings>, 'origins'>,
  environment: Environment,
): Promise<string[]> {
  const found: string[] = []
  for (const [name, { raw }] of origins) {
    if (SECRET_FILE.test(name)) found.push(...(await linesOf(String(raw))))
    else if (settings[name]?.secret) found.push(...String(raw).split(/[\s"'=]+/))
    found.push(...credentialsOf(String(raw)))
  }
  for (const [name, value = ''] of Object.entries(environment)) {
    if (isSecretMember(name) && !PLACE.test(name)) found.push(value)
    found.push(...credentialsOf(value))
  }
  const long = new Set(found.map(text => text.trim()).filter(text => text.length >= MIN_LENGTH))
  // One that begins with another is replaced whole.
  return [...long].sort((a, b) => b.length - a.length)
}

async function linesOf(file: string): Promise<string[]> {
  const text = await readPlain(file, MAX_FILE_BYTES).then(String, () => '')
  return text.split('\n').filter(line => !line.startsWith('-----'))
}

/** `user:password@` of URLs, as written and as meant. */
function credentialsOf(text: string): string[] {
  return Array.from(text.matchAll(/:\/\/([^\s/]*)@/g), ([, pair]) => pair!).flatMap(pair => {
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
