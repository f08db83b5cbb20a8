import type { ExchangeRecord } from '../../protocol/exchange.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { PacedLogger } from '../../protocol/base/paced-logger.ts'

/** Logs exchanges that are over: those that failed with 5xx or were cut, as often as may be; all; or none. */
export function accessLog(logger: Logger, mode: 'errors' | 'all' | 'off'): (exchange: ExchangeRecord) => void {
  if (mode === 'off') return () => {}
  // Requests for names that nobody serves can fail at any rate, so they are paced; with `all`, nothing is left out.
  const log = mode === 'errors' ? new PacedLogger(logger) : logger
  return exchange => {
    const failed = exchange.status >= 500 || exchange.cut
    if (!failed && mode === 'errors') return
    const fields = { ...exchange, durationMs: Math.round(exchange.durationMs * 10) / 10 }
    if (failed) log.warn(fields, 'exchange')
    else log.info(fields, 'exchange')
  }
}
