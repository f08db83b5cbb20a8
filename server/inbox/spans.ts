/**
 * Spans of a webhook whose trace is recorded: one for its acceptance, and one per delivery. A delivery may come long after
 * the trace of its request has ended, so it is a trace of its own with a link to it.
 */
import type { Caller, Handler, HttpRequest } from '../../protocol/exchange.ts'
import { readContext, removeContext, writeContext } from '../../protocol/trace/context.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { TracedExchange } from '../../protocol/trace/traced.ts'
import type { Message } from './store.ts'

type Kept = Caller & {
  /** `traceparent` of the span that accepted it. Absent if that was not recorded. */
  readonly trace?: string | undefined
}

/** The caller of a webhook and its trace. Stored unencrypted, even if the webhook is sealed. */
export function encodeCaller(caller: Caller, span: Span | undefined): string {
  if (span === undefined) return JSON.stringify(caller)
  const fields: string[] = []
  writeContext(fields, { ...span.context, state: undefined })
  return JSON.stringify({ ...caller, trace: fields[1] } satisfies Kept)
}

export function decodeCaller(text: string): Caller {
  const { address, scheme, host } = JSON.parse(text) as Kept
  return { address, scheme, host }
}

/** The span of accepting a webhook, a child of the request's span. */
export function beginAccept(id: string, { span: whole }: HttpRequest, why: string): Span | undefined {
  const span = whole?.child('inbox accept', 'producer')
  span?.set('sallyport.inbox_id', id)
  span?.set('sallyport.reason', why)
  return span
}

/** Wraps `deliver` so that the delivery is recorded if the acceptance was. */
export function tracedDelivery(tracing: Tracing | undefined, message: Message, deliver: Handler): Handler {
  if (tracing === undefined) return deliver
  const { trace = '' } = JSON.parse(message.caller) as Kept
  const accepted = readContext(['traceparent', trace])
  return (request, response) => {
    // The stored trace context is that of the original request.
    removeContext(request.headers)
    if (accepted === undefined) return deliver(request, response)
    const span = tracing.tracer.start('inbox deliver', 'consumer', undefined)
    span.link(accepted)
    span.set('sallyport.inbox_id', message.id)
    span.set('sallyport.inbox_attempt', message.attempts)
    return new TracedExchange(span, request, response).pass(deliver, request)
  }
}
