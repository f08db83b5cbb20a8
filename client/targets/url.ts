/** A target that is the URL of a service: `http:`, `https:` or `h2c:`, with only host and port. */
import type { Logger } from '../../protocol/base/log.ts'
import { createForwarder } from '../../router/forward.ts'
import type { OpenTarget } from './index.ts'

/** Throws TypeError for a URL that cannot be a target. */
export function urlTarget(url: string | URL, logger: Logger): OpenTarget {
  try {
    const { handler, check, close } = createForwarder(url, { logger })
    return { handler, announcement: () => ({ cors: [] }), check, close }
  } catch (cause) {
    throw new TypeError(`target: ${(cause as Error).message}`, { cause })
  }
}
