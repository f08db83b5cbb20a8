/** Where a server keeps webhooks, and how many. */
import { type LimitOptions, resolveLimits } from '../../protocol/base/limit.ts'
import { INBOX, type InboxLimits } from '../limits.ts'

/** The inbox of a server; `docs/inbox.md` says what it promises. */
export interface InboxOptions extends LimitOptions<typeof INBOX> {
  /** `sqlite:/var/lib/sallyport/inbox.db`: a file in a folder that exists. One server has it at a time. */
  readonly url: string
  /** Webhooks stand in the file as they came. Must be true: the file is to be protected by whoever runs the server. */
  readonly plaintext?: boolean | undefined
}

export interface ResolvedInbox {
  readonly path: string
  readonly limits: InboxLimits
}

/** Throws a TypeError that names what is wrong. */
export function checkInboxOptions(options: InboxOptions | undefined): ResolvedInbox | undefined {
  if (options === undefined) return undefined
  const { url, plaintext, ...limits } = options
  const [, path = ''] = /^sqlite:(.+)$/.exec(url) ?? []
  if (path === '') throw new TypeError(`inbox: ${url} is no store: write sqlite:PATH`)
  if (plaintext !== true) {
    throw new TypeError(
      'inbox: webhooks would stand in the file as they came: set inbox.plaintext if the file is protected otherwise',
    )
  }
  return { path, limits: resolveLimits(INBOX, limits, 'inbox') }
}
