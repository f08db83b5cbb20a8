/** A key set behind an https URL: fetched without redirects, at most 64 KiB in at most 5 s. The last valid set is kept. */
import type { Logger } from '../../protocol/base/log.ts'
import { Download } from './download.ts'
import { type KeySet, type KeySource, MAX_KEY_SET_BYTES, parseKeySet } from './key-source.ts'
import { PolledDocument } from './polled-document.ts'

interface UrlKeysOptions {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
  readonly ca?: string | string[] | undefined
  /** After a fetch, tokens with an unknown key or an invalid signature cause no other fetch for this long. Default 30,000. */
  readonly coolDownMs?: number | undefined
  /** How often the set is fetched again. Default 600,000. 0 means only when a token needs it. */
  readonly refreshMs?: number | undefined
  /** Those that tokens may have. Default: all. */
  readonly algorithms?: readonly string[] | undefined
}

/**
 * Fetches the set. If that fails, goes on without one; until a fetch succeeds, every handshake gets 503. `now` must be monotonic.
 * `onOpened` gets the source before the first fetch, so that it can be closed meanwhile.
 */
export async function urlKeys(
  options: UrlKeysOptions,
  logger: Logger,
  now: () => number,
  onOpened: (source: KeySource) => void = () => {},
): Promise<KeySource> {
  if (new URL(options.url).protocol !== 'https:') throw new TypeError('auth.jwks.url must be an https URL')
  const { coolDownMs = 30_000, refreshMs = 600_000 } = options
  const keys = new PolledDocument(keySetDownload(options), { what: 'the key set', refreshMs, logger, now })
  const source: KeySource = {
    get current() {
      return keys.current
    },
    refresh: () => keys.refresh(coolDownMs),
    close: () => keys.close(),
  }
  onOpened(source)
  await keys.start()
  return source
}

type WhichKeys = Pick<UrlKeysOptions, 'url' | 'ca' | 'algorithms'>

export function keySetDownload({ url, ca, algorithms }: WhichKeys): Download<KeySet> {
  const accept = 'application/jwk-set+json, application/json'
  const parse = (text: string) => parseKeySet(text, algorithms)
  return new Download({ url, ca, accept, maxBytes: MAX_KEY_SET_BYTES, parse })
}
