import type { Logger } from '../../protocol/base/log.ts'
import { PacedLogger } from '../../protocol/base/paced-logger.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import type { Terminal } from '../terminal/terminal.ts'

type Mode = 'errors' | 'all' | 'off'

/** Shows exchanges on the terminal. */
export function watchExchanges(terminal: Terminal, mode: Mode): (exchange: ExchangeRecord) => void {
  return exchange => {
    if (mode === 'all' || (mode === 'errors' && hasFailed(exchange))) terminal.exchange(exchange)
  }
}

function hasFailed({ status, cut }: ExchangeRecord): boolean {
  return status >= 500 || cut
}

/** Logs exchanges when they end: all, none, or those that failed with 5xx or were cut, at a limited rate. */
export function accessLog(logger: Logger, mode: Mode): (exchange: ExchangeRecord) => void {
  if (mode === 'off') return () => {}
  // Requests for names that nobody serves can fail at any rate, so failures are limited. With `all`, nothing is left out.
  const log = mode === 'errors' ? new PacedLogger(logger) : logger
  return exchange => {
    const failed = hasFailed(exchange)
    if (!failed && mode === 'errors') return
    const fields = { ...exchange, durationMs: Math.round(exchange.durationMs * 10) / 10 }
    if (failed) log.warn(fields, 'exchange')
    else log.info(fields, 'exchange')
  }
}
