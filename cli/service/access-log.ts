import type { ExchangeRecord } from '../../protocol/exchange.ts'
import type { Logger } from '../../protocol/base/log.ts'

/** Logs exchanges that are over: those that failed with 5xx or were cut, all, or none. */
export function accessLog(logger: Logger, mode: 'errors' | 'all' | 'off'): (exchange: ExchangeRecord) => void {
  if (mode === 'off') return () => {}
  return exchange => {
    const failed = exchange.status >= 500 || exchange.cut
    if (!failed && mode === 'errors') return
    const fields = { ...exchange, durationMs: Math.round(exchange.durationMs * 10) / 10 }
    if (failed) logger.warn(fields, 'exchange')
    else logger.info(fields, 'exchange')
  }
}
