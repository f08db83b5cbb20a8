/** Reads and writes `traceparent` and `tracestate` (W3C Trace Context). */
import { ownText } from '../base/latin1.ts'
import type { HeaderList } from '../exchange.ts'
import { removeWhere } from '../http/headers.ts'
import type { SpanContext } from './span.ts'
import { fittingState } from './state.ts'

/** Version, trace id, parent id, flags. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][0-9a-f]/
const LENGTH = 55
const [TRACE_AT, SPAN_AT, FLAGS_AT] = [3, 36, 53]

const PARENT = 'traceparent'
const STATE = 'tracestate'

/** The context that a request came with, if there is exactly one `traceparent` and it is valid. */
export function readContext(headers: HeaderList): SpanContext | undefined {
  let parent: string | undefined
  let state: string | undefined
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]
    if (name === PARENT) {
      if (parent !== undefined) return undefined
      parent = headers[i + 1]!
    } else if (name === STATE) state = state === undefined ? headers[i + 1]! : `${state},${headers[i + 1]}`
  }
  if (parent === undefined || !isTraceParent(parent)) return undefined
  // Spans are kept for longer than their request.
  const traceId = ownText(parent.slice(TRACE_AT, TRACE_AT + 32))
  const spanId = ownText(parent.slice(SPAN_AT, SPAN_AT + 16))
  const fitting = state === undefined ? undefined : fittingState(ownText(state))
  return { traceId, spanId, sampled: isSampled(parent), state: fitting }
}

/** A later version may have more after the flags. */
function isTraceParent(text: string): boolean {
  if (!TRACEPARENT.test(text)) return false
  return text.length === LENGTH || (text[LENGTH] === '-' && !text.startsWith('00'))
}

/** The lowest bit of the flags. */
function isSampled(parent: string): boolean {
  return (Number.parseInt(parent[FLAGS_AT + 1]!, 16) & 1) === 1
}

/** Sets the trace fields of a request to `context`, and removes any others. */
export function writeContext(headers: HeaderList, { traceId, spanId, sampled, state }: SpanContext): void {
  const value = `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`
  let at = -1
  let stateAt = -1
  let isPlain = true
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]
    if (name === PARENT) {
      isPlain &&= at < 0
      at = i + 1
    } else if (name === STATE) {
      isPlain &&= stateAt < 0 && headers[i + 1] === state
      stateAt = i + 1
    }
  }
  // There is almost always one of each, or none, and the state is passed on unchanged.
  if (isPlain && at >= 0 && stateAt >= 0 === (state !== undefined)) headers[at] = value
  else {
    removeContext(headers)
    headers.push(PARENT, value)
    if (state !== undefined) headers.push(STATE, state)
  }
}

/** Removes a context that is not trusted. */
export function removeContext(headers: HeaderList): void {
  for (let i = 0; i < headers.length; i += 2) {
    if (!isTraceField(headers[i]!)) continue
    removeWhere(headers, isTraceField)
    return
  }
}

function isTraceField(name: string): boolean {
  return name === PARENT || name === STATE
}

/** The trace id, 32 hex digits, if there is exactly one valid `traceparent` and the trace is sampled. */
export function sampledTraceId(headers: HeaderList): string | undefined {
  const context = readContext(headers)
  return context?.sampled === true ? context.traceId : undefined
}
