import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { Session } from '../../protocol/wire/yamux/session.ts'

/** The same as for exchanges at a replica that stops. */
const DRAIN_MS = 30_000

/** Closes a connection to a replica whose certificate has to be verified anew. Exchanges in progress have a while to end. */
export function retire(session: Session, logger: Logger): void {
  const guard = logGuard(logger, 'closing a connection to another replica failed')
  const late = guard(() => session.close("the replicas' authorities have changed"))
  setTimeout(late, DRAIN_MS).unref()
}
