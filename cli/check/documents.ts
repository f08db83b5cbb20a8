/** Reads key sets and the list of revocations, as the server does. */
import { urlForLogs } from '../../protocol/base/path.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import type { Download } from '../../server/auth/download.ts'
import {
  algorithmsOf,
  type KeyOrigin,
  type KeySet,
  MAX_KEY_SET_BYTES,
  parseKeySet,
} from '../../server/auth/key-source.ts'
import { keySetDownload } from '../../server/auth/key-url.ts'
import type { RevocationSources } from '../../server/auth/revocation-store.ts'
import { revocationsDownload } from '../../server/auth/revocation-url.ts'
import { attempt } from './attempt.ts'

/** `refused`: who gets 503 without it. `algorithms`: those that tokens may have. */
export async function probeKeySet(
  flag: string,
  origin: KeyOrigin | undefined,
  algorithms: readonly string[],
  refused: string,
): Promise<Probe[]> {
  if (origin === undefined || 'keys' in origin) return []
  const what = 'file' in origin ? `${flag}.file ${origin.file}` : `${flag}.url ${urlForLogs(origin.url)}`
  const about = { code: 'key-set', what, expected: 'a key set (JWKS) with keys that tokens may be signed with' }
  const probe = attempt(about, adviceOf(flag, refused), async () => {
    const usable = await algorithmsOf(await readKeys(origin, algorithms), algorithms)
    return { found: `it has keys for ${usable.join(', ')}` }
  })
  return [await probe]
}

export async function probeRevocations(flag: string, { url, ca }: RevocationSources = {}): Promise<Probe[]> {
  if (url === undefined) return []
  const about = { code: 'revocations', what: `${flag}.url ${urlForLogs(url)}`, expected: 'a list of revocations' }
  const probe = attempt(about, adviceOf(flag, 'clients'), async () => {
    return { found: `it has ${(await getOnce(revocationsDownload({ url, ca }))).length}` }
  })
  return [await probe]
}

function adviceOf(flag: string, refused: string) {
  return { ca: `${flag}.ca`, hint: `Until it can be read, ${refused} get 503.` }
}

async function readKeys(origin: Exclude<KeyOrigin, { keys: unknown }>, algorithms: readonly string[]): Promise<KeySet> {
  if ('url' in origin) return await getOnce(keySetDownload({ ...origin, algorithms }))
  return parseKeySet(String(await readPlain(origin.file, MAX_KEY_SET_BYTES)), algorithms)
}

async function getOnce<Document>(download: Download<Document>): Promise<Document> {
  try {
    return (await download.get())!
  } finally {
    download.close()
  }
}
