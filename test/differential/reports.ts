/** How an upstream reports what it saw of a request: one response field, five words. */
import { createHash } from 'node:crypto'

export interface Report {
  readonly method: string
  /** As in the request line. */
  readonly target: string
  readonly host: string
  readonly bodyBytes: number
  readonly bodyMd5: string
}

/** Name of the field. {@link CONNECTION_FIELD} is followed by the port from which the connection came. */
export const REPORT_FIELD = 'x-saw'
export const CONNECTION_FIELD = 'x-port'

export function md5(bytes: Uint8Array): string {
  return createHash('md5').update(bytes).digest('hex')
}

export function writeReport({ method, target, host, bodyBytes, bodyMd5 }: Report): string {
  return `${method} ${target} ${host || '-'} ${bodyBytes} ${bodyMd5}`
}

export function readReport(text: string): Report {
  const [method = '', target = '', host = '', bodyBytes = '', bodyMd5 = ''] = text.split(' ')
  return { method, target, host: host === '-' ? '' : host, bodyBytes: Number(bodyBytes), bodyMd5 }
}
