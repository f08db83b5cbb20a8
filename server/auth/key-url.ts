/** A key set behind an https URL: fetched without redirects, at most 64 KiB in at most 5 s. The last valid set is kept. */
import { starting } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { Download } from './download.ts'
import { type KeySet, type KeySource, MAX_KEY_SET_BYTES, parseKeySet } from './key-source.ts'

const RETRY_MS = 5000

interface UrlKeysOptions {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
  readonly ca?: string | string[] | undefined
  /** After a fetch, tokens with an unknown key or an invalid signature cause no other fetch for this long. Default 30,000. */
  readonly coolDownMs?: number | undefined
  /** How often the set is fetched again. Default 600,000. 0 means only when a token needs it. */
  readonly refreshMs?: number | undefined
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
  const source = new UrlKeys(options, logger, now)
  onOpened(source)
  await source.start()
  return source
}

export function keySetDownload({ url, ca }: Pick<UrlKeysOptions, 'url' | 'ca'>): Download<KeySet> {
  const accept = 'application/jwk-set+json, application/json'
  return new Download({ url, ca, accept, maxBytes: MAX_KEY_SET_BYTES, parse: parseKeySet })
}

class UrlKeys implements KeySource {
  current: KeySet | undefined
  readonly #coolDownMs: number
  readonly #refreshMs: number
  readonly #logger: Logger
  readonly #now: () => number
  readonly #download: Download<KeySet>
  #fetching: Promise<boolean> | undefined
  #fetchedAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #closed = false
  #failed = false

  constructor(options: UrlKeysOptions, logger: Logger, now: () => number) {
    this.#coolDownMs = options.coolDownMs ?? 30_000
    this.#refreshMs = options.refreshMs ?? 600_000
    this.#logger = logger
    this.#now = now
    this.#download = keySetDownload(options)
  }

  /** Fetches the set now, and from then on regularly; sooner after a failure, since a key may have been removed from the set. */
  async start(): Promise<void> {
    const afterMs = (await this.#fetch()) ? this.#refreshMs : RETRY_MS
    if (afterMs === 0 || this.#closed) return
    const due = starting(this.#logger, 'refreshing the key set failed', () => this.start())
    this.#timer = setTimeout(due, afterMs).unref()
  }

  async refresh(): Promise<boolean> {
    if (this.#fetching === undefined && this.#now() - this.#fetchedAt < this.#coolDownMs) return false
    return this.#fetch()
  }

  #fetch(): Promise<boolean> {
    this.#fetching ??= this.#fetchOnce().finally(() => {
      this.#fetching = undefined
      this.#fetchedAt = this.#now()
    })
    return this.#fetching
  }

  async #fetchOnce(): Promise<boolean> {
    try {
      this.current = (await this.#download.get()) ?? this.current
      this.#failed = false
      return true
    } catch (error) {
      if (this.#failed || this.#closed) return false
      this.#failed = true
      const kept = this.current === undefined ? 'there is none yet' : 'the last good one stays'
      this.#logger.error({ url: this.#download.place, err: error }, `the key set could not be fetched; ${kept}`)
      return false
    }
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#download.close()
  }
}
