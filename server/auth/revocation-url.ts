/** A list of revocations behind an https URL. It is fetched regularly, and the last valid one is kept. */
import type { Logger } from '../../protocol/base/log.ts'
import { Download } from './download.ts'
import { PolledDocument } from './polled-document.ts'
import { MAX_LIST_BYTES, parseRevocations } from './revocation-list.ts'
import type { Revocation } from './revocations.ts'

/** With the 5 s that a download may take, a rule is in force within 10 s. */
const REFRESH_MS = 5000

export interface UrlRevocationsOptions {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
  readonly ca?: string | string[] | undefined
}

export function revocationsDownload({ url, ca }: UrlRevocationsOptions): Download<readonly Revocation[]> {
  return new Download({ url, ca, accept: 'application/json', maxBytes: MAX_LIST_BYTES, parse: parseDocument })
}

/** Only a file may be empty. */
function parseDocument(text: string): readonly Revocation[] {
  if (text.trim() === '') throw new Error('the document is empty')
  return parseRevocations(text)
}

export function urlRevocations(
  options: UrlRevocationsOptions,
  logger: Logger,
  onDocument: (rules: readonly Revocation[]) => void,
): PolledDocument<readonly Revocation[]> {
  const what = 'the list of revocations'
  return new PolledDocument(revocationsDownload(options), { what, refreshMs: REFRESH_MS, logger, onDocument })
}
