import { expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { shielded } from '../../protocol/shield.ts'
import { EXCHANGE, ends } from '../support/ends.ts'

const REQUEST: Record<string, (sink: RequestSink) => void> = {
  requestData: sink => sink.requestData(Buffer.from('x')),
  requestEnd: sink => sink.requestEnd([]),
  requestAbort: sink => sink.requestAbort(new SallyportError('cancelled')),
  responseConsumed: sink => sink.responseConsumed(1),
}
const RESPONSE: Record<string, (sink: ResponseSink) => void> = {
  responseInformational: sink => sink.responseInformational(103, []),
  responseHead: sink => sink.responseHead({ status: 200, headers: [], bodyBytes: 0 }),
  responseData: sink => sink.responseData(Buffer.from('x')),
  responseEnd: sink => sink.responseEnd([]),
  responseAbort: sink => sink.responseAbort(new SallyportError('upstream-broken')),
  requestConsumed: sink => sink.requestConsumed(1),
  acknowledged: sink => sink.acknowledged!(),
  unwanted: sink => sink.unwanted!(),
}

/** A layer whose object throws in one of its methods. */
function throwing(method: string, copies: boolean): Layer {
  return next => (request, response) => {
    const passing = new PassThrough(response).pass(next, copies ? { ...request } : request)
    Object.defineProperty(passing, method, {
      value: () => {
        throw new Error('planned')
      },
    })
    return passing
  }
}

function begin(layer: Layer) {
  const defects: unknown[] = []
  const both = ends()
  const logger = { ...noLogger, error: (fields: object) => void defects.push(fields) }
  const sink = shielded([layer], both.next, logger)({ ...EXCHANGE }, both.front)
  return {
    ...both,
    get response() {
      return both.response
    },
    sink,
    defects,
  }
}

const CASES = [...Object.keys(REQUEST), ...Object.keys(RESPONSE)].flatMap(name => [
  [name, false] as const,
  [name, true] as const,
])

test.each(CASES)('a layer that throws in %s (its request a copy: %s) costs its exchange', (name, copies) => {
  const played = begin(throwing(name, copies))
  if (name in REQUEST) REQUEST[name]!(played.sink)
  else RESPONSE[name]!(played.response)
  expect(played.defects).toHaveLength(1)
  if (name === 'requestAbort') expect(played.events).toEqual([])
  else {
    expect(played.events.filter(event => event === 'responseAbort internal')).toHaveLength(1)
    expect(played.events.filter(event => event.startsWith('requestAbort'))).toHaveLength(1)
  }
})

test('a layer that throws as a handler is answered for', () => {
  const played = begin(() => () => {
    throw new Error('planned')
  })
  expect(played.events).toEqual(['responseAbort internal'])
  expect(played.defects).toHaveLength(1)
})

test('without layers there is nothing between', () => {
  const { next } = ends()
  expect(shielded([], next, noLogger)).toBe(next)
})
