/** An exchange that is over, as the metrics and the page are told of it. */
import type { ExchangeRecord } from '../../protocol/exchange.ts'

export function exchange(more: Partial<ExchangeRecord> = {}): ExchangeRecord {
  return {
    ...{ requestId: 'r', runtime: 'demo', route: undefined, session: 's', method: 'GET', host: 'h', path: '/' },
    ...{ caller: '192.0.2.1', status: 200, code: undefined, cut: false, durationMs: 12, bytesIn: 3, bytesOut: 5 },
    ...{ upgrade: false, ...more },
  }
}
