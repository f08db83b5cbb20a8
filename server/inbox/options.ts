/** Where a server keeps webhooks, and how many. */
import { type LimitOptions, resolveLimits } from '../../protocol/base/limit.ts'
import { INBOX, type InboxLimits } from '../limits.ts'

/** The inbox of a server; `docs/inbox.md` says what it promises. */
export interface InboxOptions extends LimitOptions<typeof INBOX> {
  /** `sqlite:/var/lib/sallyport/inbox.db`: a file in a folder that exists. One server has it at a time. */
  readonly url: string
  /**
   * Keeps webhooks of clients that have no key to seal them for, as they came. Default false: for those nothing is kept. Protect the
   * file, and the copies of it.
   */
  readonly plaintext?: boolean | undefined
}

export interface ResolvedInbox {
  readonly path: string
  readonly plaintext: boolean
  readonly limits: InboxLimits
}

/** Throws a TypeError that names what is wrong. */
export function checkInboxOptions(options: InboxOptions | undefined): ResolvedInbox | undefined {
  if (options === undefined) return undefined
  const { url, plaintext, ...limits } = options
  const [, path = ''] = /^sqlite:(.+)$/.exec(url) ?? []
  if (path === '') throw new TypeError(`inbox: ${url} is no store: write sqlite:PATH`)
  return { path, plaintext: plaintext ?? false, limits: resolveLimits(INBOX, limits, 'inbox') }
}
