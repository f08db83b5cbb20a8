/**
 * What is told of a webhook whose trace is recorded: that it was taken, and each delivery. A delivery comes when its trace may be
 * long over, so it is a trace of its own, which leads back.
 */
import type { Caller, Handler, HttpRequest } from '../../protocol/exchange.ts'
import { readContext, removeContext, writeContext } from '../../protocol/trace/context.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { TracedExchange } from '../../protocol/trace/traced.ts'
import type { Message } from './store.ts'

type Kept = Caller & {
  /** `traceparent` of the span that took it; absent: nobody recorded that. */
  readonly trace?: string | undefined
}

/** Who sent a webhook, and in which trace, in clear beside one that may be sealed. */
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

/** The span that takes a webhook, as a part of its request. */
export function beginAccept(id: string, { span: whole }: HttpRequest, why: string): Span | undefined {
  const span = whole?.child('inbox accept', 'producer')
  span?.set('sallyport.inbox_id', id)
  span?.set('sallyport.reason', why)
  return span
}

/** `deliver`, for this message: recorded if its acceptance was. */
export function tracedDelivery(tracing: Tracing | undefined, message: Message, deliver: Handler): Handler {
  if (tracing === undefined) return deliver
  const { trace = '' } = JSON.parse(message.caller) as Kept
  const accepted = readContext(['traceparent', trace])
  return (request, response) => {
    // What stands there is of the request that was taken.
    removeContext(request.headers)
    if (accepted === undefined) return deliver(request, response)
    const span = tracing.tracer.start('inbox deliver', 'consumer', undefined)
    span.link(accepted)
    span.set('sallyport.inbox_id', message.id)
    span.set('sallyport.inbox_attempt', message.attempts)
    return new TracedExchange(span, request, response).pass(deliver, request)
  }
}
