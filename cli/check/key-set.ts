import type { Probe } from '../../protocol/base/probe.ts'
import { Download } from '../../server/auth/download.ts'
import { MAX_KEY_SET_BYTES, parseKeySet } from '../../server/auth/key-source.ts'

/** Fetches the key set once, as the server would. */
export async function probeKeySet(url: string, ca: string | undefined): Promise<Probe> {
  const download = new Download({ url, ca, accept: 'application/json', maxBytes: MAX_KEY_SET_BYTES })
  const about = { code: 'key-set', what: `--auth.jwks.url ${download.place}`, expected: 'a key set (JWKS)' }
  try {
    parseKeySet((await download.get()) ?? '')
    return { ...about, status: 'ok', found: 'a key set', hint: '' }
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException
    const hint = 'Until it can be fetched, the server answers every client with 503.'
    return { ...about, status: 'fail', found: message || code || 'no answer', hint }
  } finally {
    download.close()
  }
}
