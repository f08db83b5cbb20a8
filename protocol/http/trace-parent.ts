/** The trace that a request belongs to, by W3C Trace Context. */
import type { HeaderList } from '../exchange.ts'

/** Version, id of the trace, id of the parent, flags. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f][0-9a-f]/
const LENGTH = 55

/** The id of its trace, 32 hex digits, if there is one `traceparent` and it says that the trace is sampled. */
export function sampledTraceId(headers: HeaderList): string | undefined {
  let found: string | undefined
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== 'traceparent') continue
    if (found !== undefined) return undefined
    found = headers[i + 1]
  }
  const match = found === undefined ? null : TRACEPARENT.exec(found)
  if (found === undefined || match === null) return undefined
  // A later version may say more behind the flags.
  const isWhole = found.length === LENGTH || (found[LENGTH] === '-' && !found.startsWith('00'))
  const flags = Number.parseInt(found.slice(LENGTH - 2, LENGTH), 16)
  return isWhole && (flags & 1) === 1 ? match[1] : undefined
}
