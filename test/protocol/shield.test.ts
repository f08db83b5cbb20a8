import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { shielded, shieldedTarget } from '../../protocol/shield.ts'
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
  requestKept: sink => sink.requestKept!(1),
  acknowledged: sink => sink.acknowledged!(),
  unwanted: sink => sink.unwanted!(),
}

/** How a layer passes its request on. */
const REQUESTS = {
  'as it is': (request: HttpRequest) => request,
  'as a copy': (request: HttpRequest) => ({ ...request }),
  'as one of its own': (request: HttpRequest) => ({ ...request, notes: undefined }),
}
type Given = keyof typeof REQUESTS

/** A layer whose object throws in one of its methods. */
function throwing(method: string, given: Given): Layer {
  return next => (request, response) => {
    const passing = new PassThrough(response)
    Object.defineProperty(passing, method, {
      value: () => {
        throw new Error('planned')
      },
    })
    return passing.pass(next, REQUESTS[given](request))
  }
}

/** `early`: what the next end says before it returns. `target` stands in front of it. */
function begin(layers: Layer | readonly Layer[], early?: (sink: ResponseSink) => void, target?: Layer) {
  const defects: unknown[] = []
  const told: string[] = []
  const both = ends()
  const logger = {
    ...noLogger,
    error: (fields: object, message: string) => {
      defects.push(fields)
      told.push(message)
    },
  }
  const next: Handler = (request, response) => {
    const sink = both.next(request, response)
    early?.(response)
    return sink
  }
  const list = typeof layers === 'function' ? [layers] : layers
  const handler = target === undefined ? next : shieldedTarget(target(next), logger)
  const sink = shielded(list, handler, logger)({ ...EXCHANGE }, both.front)
  return {
    ...both,
    get response() {
      return both.response
    },
    sink,
    defects,
    told,
  }
}

const said = (events: readonly string[], what: string) => events.filter(event => event.startsWith(what))

const CASES = [...Object.keys(REQUEST), ...Object.keys(RESPONSE)].flatMap(name =>
  (Object.keys(REQUESTS) as Given[]).map(given => [name, given] as const),
)

test.each(CASES)('a layer that throws in %s (its request handed on %s) costs its exchange', (name, given) => {
  const played = begin(throwing(name, given))
  if (name in REQUEST) REQUEST[name]!(played.sink)
  else RESPONSE[name]!(played.response)
  const reason = name === 'requestAbort' ? 'cancelled' : 'internal'
  // A layer that makes its own request breaks the path by which the next end would hear of it.
  if (name in RESPONSE || given !== 'as one of its own') {
    expect(said(played.events, 'requestAbort')).toEqual([`requestAbort ${reason}`])
  }
  if (name === 'requestAbort') expect(said(played.events, 'response')).toEqual([])
  else if (name === 'responseAbort' && given === 'as one of its own') expect(played.events).not.toContain('responseEnd')
  else expect(said(played.events, 'responseAbort')).toEqual(['responseAbort internal'])
  expect(played.defects.length).toBeGreaterThan(0)
})

test.each(CASES.filter(([name]) => name in RESPONSE))(
  'a layer that throws in %s (its request handed on %s) of an answer that comes at once costs its exchange',
  (name, given) => {
    const played = begin(throwing(name, given), RESPONSE[name])
    expect(said(played.events, 'requestAbort')).toEqual(['requestAbort internal'])
    if (name !== 'responseAbort' || given !== 'as one of its own') {
      expect(said(played.events, 'responseAbort')).toEqual(['responseAbort internal'])
    }
    played.sink.requestData(Buffer.from('x'))
    expect(played.events).not.toContain('requestData 1')
  },
)

test('a layer that throws when it hears that all is over hides nothing from the next end', () => {
  class Failing extends PassThrough {
    protected override over(): void {
      throw new Error('planned')
    }
  }
  const played = begin(next => (request, response) => new Failing(response).pass(next, request))
  played.sink.requestAbort(new SallyportError('cancelled'))
  expect(played.events).toEqual(['requestAbort cancelled'])
})

describe('a layer that passes on late', () => {
  const sink = (): RequestSink => ({ requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} })
  function later() {
    let go = () => {}
    const layer: Layer = next => (request, response) => {
      go = () => void next(request, response)
      return sink()
    }
    return { layer, go: () => go() }
  }

  test('begins nothing for a caller that has left', () => {
    const { layer, go } = later()
    const played = begin(layer)
    played.sink.requestAbort(new SallyportError('cancelled'))
    go()
    expect(played.request).toBeUndefined()
  })

  test('meets no exception from the layers behind it', () => {
    const { layer, go } = later()
    const failing: Layer = () => () => {
      throw new Error('planned')
    }
    const played = begin([layer, failing])
    go()
    expect(played.events).toEqual(['responseAbort internal'])
  })

  test.each(['responseHead', 'responseData'])('and does not hear that the caller left ends at %s', name => {
    const { layer, go } = later()
    const played = begin(layer)
    go()
    played.sink.requestAbort(new SallyportError('cancelled'))
    RESPONSE[name]!(played.response)
    expect(played.events).toEqual(['requestAbort cancelled'])
  })
})

describe('a layer that calls the others from its own timer meets no exception of theirs', () => {
  test.each(Object.keys(REQUEST))('with what the caller said: %s', name => {
    let go = () => {}
    const late: Layer = next => (request, response) => {
      const passing = new PassThrough(response)
      go = () => void passing.pass(next, request)
      return passing
    }
    const played = begin([late, throwing(name, 'as it is')])
    const steps = [() => REQUEST[name]!(played.sink), go]
    // A caller that leaves before the request is passed on meets no other layer.
    for (const step of name === 'requestAbort' ? steps.reverse() : steps) step()
    expect(said(played.events, 'responseAbort')).toEqual(name === 'requestAbort' ? [] : ['responseAbort internal'])
    expect(said(played.events, 'requestAbort')).toHaveLength(1)
    expect(played.defects.length).toBeGreaterThan(0)
  })

  test.each(Object.keys(RESPONSE))('with an answer: %s', name => {
    let answer = () => {}
    const answering: Layer = () => (_request, response) => {
      answer = () => RESPONSE[name]!(response)
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    }
    const played = begin([throwing(name, 'as it is'), answering])
    answer()
    expect(said(played.events, 'responseAbort')).toEqual(['responseAbort internal'])
    expect(played.defects.length).toBeGreaterThan(0)
  })
})

/** A layer or a target that is called with the ends beside it. */
const SPEAKERS = {
  'a layer': { begin: (layer: Layer) => begin(layer), reason: 'internal' },
  'a target': { begin: (layer: Layer) => begin([], undefined, layer), reason: 'upstream-broken' },
}
describe.each(Object.entries(SPEAKERS))(
  'what %s says from its own timer, and cannot be said,',
  (who, { begin, reason }) => {
    function speaking() {
      const beside: { response?: ResponseSink; behind?: RequestSink } = {}
      const layer: Layer = next => (request, response) => {
        beside.response = response
        beside.behind = next(request, response)
        return beside.behind
      }
      return { layer, beside: beside as Required<typeof beside> }
    }
    const HEAD = { status: 200, headers: [], bodyBytes: -1 }
    const head = (sink: ResponseSink) => sink.responseHead(HEAD)
    const WRONG: unknown[] = [Number.NaN, -1, 0.5, Number.POSITIVE_INFINITY, undefined, '1']
    const FIELDS: unknown[] = [undefined, ['a'], ['a', undefined], ['a', 1], 'ab']

    test.each([
      ['a body before the head', sink => sink.responseData(Buffer.from('x'))],
      ['an end before the head', sink => sink.responseEnd([])],
      ['an error that is none of ours', sink => sink.responseAbort(new TypeError('planned') as never)],
      ['no error', sink => sink.responseAbort(undefined as never)],
      ['no head', sink => sink.responseHead(undefined as never)],
      ['nothing more is wanted, before the head', sink => sink.unwanted!()],
      ...WRONG.flatMap(bytes => [
        [`${bytes} bytes of credit`, (sink: ResponseSink) => sink.requestConsumed(bytes as never)] as const,
        [`${bytes} bytes kept`, (sink: ResponseSink) => sink.requestKept!(bytes as never)] as const,
      ]),
      ...[...WRONG, 100, 199, 600].map(
        status =>
          [
            `status ${status}`,
            (sink: ResponseSink) => sink.responseHead({ ...HEAD, status: status as never }),
          ] as const,
      ),
      ...[...WRONG, 101, 200].map(
        status =>
          [
            `an informational ${status}`,
            (sink: ResponseSink) => sink.responseInformational(status as never, []),
          ] as const,
      ),
      ...FIELDS.flatMap(headers => [
        [
          `the fields ${headers}`,
          (sink: ResponseSink) => sink.responseHead({ ...HEAD, headers: headers as never }),
        ] as const,
        [
          `the early fields ${headers}`,
          (sink: ResponseSink) => sink.responseInformational(103, headers as never),
        ] as const,
      ]),
      ...WRONG.filter(bytes => bytes !== -1).map(
        bytes =>
          [
            `a length of ${bytes}`,
            (sink: ResponseSink) => sink.responseHead({ ...HEAD, bodyBytes: bytes as never }),
          ] as const,
      ),
    ] as [string, (sink: ResponseSink) => void][])('costs its exchange: %s', (_, say) => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      say(beside.response)
      expect(said(played.events, 'response')).toEqual([`responseAbort ${reason}`])
      expect(played.events.filter(event => /NaN|Consumed|Kept|head|informational/.test(event))).toEqual([])
      expect(played.told).toEqual([`${who} threw`])
    })

    test.each<[string, (sink: ResponseSink) => void]>([
      ...[null, undefined, 'text', {}, [1]].map(
        chunk => [`the chunk ${chunk}`, (sink: ResponseSink) => sink.responseData(chunk as never)] as const,
      ),
      ...FIELDS.map(
        fields => [`the trailers ${fields}`, (sink: ResponseSink) => sink.responseEnd(fields as never)] as const,
      ),
      ['a second head', head],
      ['nothing more is wanted, before the end', sink => sink.unwanted!()],
    ] as [string, (sink: ResponseSink) => void][])('cuts its answer: %s', (_, say) => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      head(beside.response)
      say(beside.response)
      expect(played.events.filter(event => !event.startsWith('requestConsumed'))).toEqual([
        'head 200',
        `requestAbort ${reason}`,
        `responseAbort ${reason}`,
      ])
      expect(played.told).toEqual([`${who} threw`])
    })

    test('credit for more than it got is no credit', () => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      played.sink.requestData(Buffer.from('abc'))
      beside.response.requestConsumed(2)
      beside.response.requestConsumed(1000)
      beside.response.requestConsumed(1)
      expect(played.events).toEqual(['requestData 3', 'requestConsumed 2', 'requestConsumed 1', 'requestConsumed 0'])
    })

    test.each<[string, (sink: ResponseSink) => void]>([
      ['fails', sink => sink.responseAbort(new SallyportError('overloaded'))],
      ['is wrong', sink => sink.responseHead(undefined as never)],
      [
        'has answered, and then is wrong',
        sink => {
          head(sink)
          sink.responseEnd([])
          head(sink)
        },
      ],
    ])('leaves nothing of the request without credit, if it %s', (_, say) => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      played.sink.requestData(Buffer.from('abc'))
      beside.response.requestConsumed(1)
      say(beside.response)
      beside.response.requestConsumed(2)
      played.sink.requestData(Buffer.from('defg'))
      const credit = said(played.events, 'requestConsumed').map(event => Number(event.split(' ')[1]))
      expect(credit.reduce((sum, bytes) => sum + bytes)).toBe(7)
      expect(said(played.events, 'requestData')).toEqual(['requestData 3'])
    })

    test('costs its exchange although the sink that it returns then throws', () => {
      const played = begin(() => (_request, response) => {
        response.responseHead(undefined as never)
        const requestAbort = () => {
          throw new Error('planned')
        }
        return { requestData() {}, requestEnd() {}, requestAbort, responseConsumed() {} }
      })
      expect(played.events).toEqual([`responseAbort ${reason}`])
      expect(played.told).toEqual([`${who} threw`, `${who} threw`])
    })

    const SAID = Object.keys(RESPONSE).filter(name => name !== 'acknowledged' && name !== 'unwanted')
    test.each(SAID)('costs its exchange if the end in front throws: %s', name => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      if (name === 'responseData' || name === 'responseEnd') head(beside.response)
      let threw = 0
      Object.defineProperty(played.front, name, {
        value: () => {
          threw++
          throw new Error('planned')
        },
      })
      RESPONSE[name]!(beside.response)
      expect(threw).toBe(1)
      expect(played.defects.length).toBeGreaterThan(0)
      if (name !== 'responseAbort') expect(played.events).toContain(`requestAbort ${reason}`)
    })
  },
)

describe('a layer', () => {
  function speaking() {
    const beside: { behind?: RequestSink } = {}
    const layer: Layer = next => (request, response) => {
      beside.behind = next(request, response)
      return beside.behind
    }
    return { layer, beside: beside as Required<typeof beside> }
  }

  test.each([Number.NaN, -1, 0.5, Number.POSITIVE_INFINITY])(
    'costs its exchange: %d bytes of credit for the answer',
    bytes => {
      const { layer, beside } = speaking()
      const played = begin(layer)
      beside.behind.responseConsumed(bytes)
      expect(played.events).toEqual(['requestAbort internal', 'responseAbort internal'])
    },
  )

  test.each<[string, (sink: RequestSink) => void]>([
    ['a chunk that is none', sink => sink.requestData({ length: 1e15 } as never)],
    ['a chunk of other numbers', sink => sink.requestData(new Uint16Array(2) as never)],
    ['no trailers', sink => sink.requestEnd(undefined as never)],
  ])('costs its exchange: it passes on %s', (_, say) => {
    const { layer, beside } = speaking()
    const played = begin(layer)
    say(beside.behind)
    expect(played.events).toEqual(['requestAbort internal', 'responseAbort internal'])
  })

  test.each<[string, (sink: ResponseSink) => void]>([
    ['refuses', sink => sink.responseAbort(new SallyportError('overloaded'))],
    ['is wrong about', sink => sink.responseHead(undefined as never)],
  ])('that keeps an answer and then %s it leaves none of it without credit', (_, say) => {
    let end = () => {}
    class Keeps extends PassThrough {
      override responseHead(): void {}
      override responseData(): void {}
      override responseEnd(): void {
        end = () => say(this.front)
      }
      readonly front: ResponseSink
      constructor(front: ResponseSink) {
        super(front)
        this.front = front
      }
    }
    const played = begin(next => (request, response) => new Keeps(response).pass(next, request))
    const ANSWER = ['responseHead', 'responseData', 'responseEnd']
    played.sink.requestEnd([])
    for (const name of ANSWER) RESPONSE[name]!(played.response)
    end()
    // Whoever has the answer drops it.
    expect(said(played.events, 'requestAbort')).toHaveLength(1)
    expect(said(played.events, 'responseAbort')).toHaveLength(1)
  })

  test('that has given credit for an answer that has ended is done with it', () => {
    let refuse = () => {}
    class Keeps extends PassThrough {
      override responseHead(): void {}
      override responseData(chunk: Uint8Array): void {
        this.responseConsumed(chunk.length)
      }
      override responseEnd(): void {
        refuse = () => this.responseAbort(new SallyportError('overloaded'))
      }
    }
    const played = begin(next => (request, response) => new Keeps(response).pass(next, request))
    played.sink.requestEnd([])
    for (const name of ['responseHead', 'responseData', 'responseEnd']) RESPONSE[name]!(played.response)
    refuse()
    expect(played.events).toEqual(['requestEnd', 'responseConsumed 1', 'responseAbort overloaded'])
  })

  test('leaving with an error that is not ours is leaving', () => {
    const { layer, beside } = speaking()
    const played = begin(layer)
    beside.behind.requestAbort(new TypeError('planned') as never)
    expect(played.events).toEqual(['requestAbort internal'])
    expect(played.defects).toHaveLength(1)
  })

  test.each([
    ['nothing', (next: Handler, _: HttpRequest, response: ResponseSink) => next(undefined as never, response)],
    ['no sink', (next: Handler, request: HttpRequest) => next(request, undefined as never)],
  ])('that passes on %s from its own timer costs its exchange', (_, pass) => {
    let go = () => {}
    const layer: Layer = next => (request, response) => {
      go = () => void pass(next, request, response)
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    }
    const failing: Handler = request => {
      throw new Error(request.path)
    }
    const played = begin(layer, undefined, () => failing)
    go()
    expect(said(played.events, 'responseAbort')).toHaveLength(1)
  })
})

test.each(['requestData', 'requestEnd', 'responseConsumed'])(
  'a target whose sink throws in %s has failed, and no layer has',
  name => {
    const heard: string[] = []
    class Hears extends PassThrough {
      protected override over(error: SallyportError | undefined): void {
        heard.push(String(error?.reason))
      }
    }
    const hears: Layer = next => (request, response) => new Hears(response).pass(next, request)
    const both = ends()
    const told: string[] = []
    const logger = { ...noLogger, error: (_: object, message: string) => void told.push(message) }
    const target = shieldedTarget(both.next, logger)
    const sink = shielded([hears, hears], target, logger)({ ...EXCHANGE }, both.front)
    Object.defineProperty(both.back, name, {
      value: () => {
        throw new Error('planned')
      },
    })
    REQUEST[name]!(sink)
    REQUEST[name]!(sink)
    const aborts = both.events.filter(event => !event.startsWith('requestConsumed'))
    expect(aborts).toEqual(['requestAbort upstream-broken', 'responseAbort upstream-broken'])
    expect(heard).toEqual(['upstream-broken', 'upstream-broken'])
    expect(told).toEqual(['a target threw'])
  },
)

test('a layer that delays the end of an upgraded connection does not fail when it hears that no more is wanted', () => {
  let end = () => {}
  class Delays extends PassThrough {
    override responseEnd(): void {
      end = () => super.responseEnd([])
    }
  }
  const played = begin(next => (request, response) => new Delays(response).pass(next, request))
  played.response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
  played.response.responseEnd([])
  played.response.unwanted!()
  expect(played.events).toEqual(['head 101'])
  end()
  expect(played.events).toEqual(['head 101', 'responseEnd', 'unwanted'])
  expect(played.told).toEqual([])
})

test('a layer that answers and still passes the request on has answered once', () => {
  const played = begin(next => (request, response) => {
    response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
    response.responseEnd([])
    return next(request, response)
  })
  RESPONSE.responseHead!(played.response)
  expect(played.events).toEqual(['head 204', 'responseEnd', 'requestAbort internal'])
  expect(played.defects).toHaveLength(1)
})

test("an async layer is answered for, and hears its promise's rejection", async () => {
  const layer = () => async () => {
    throw new Error('planned')
  }
  const played = begin(layer as unknown as Layer)
  await Promise.resolve()
  expect(played.events).toEqual(['responseAbort internal'])
  const told = played.defects.map(defect => (defect as { err: Error }).err.message)
  expect(told).toEqual(['a handler returned no sink', 'planned'])
})

test('a layer that throws as a handler is answered for', () => {
  const played = begin(() => () => {
    throw new Error('planned')
  })
  expect(played.events).toEqual(['responseAbort internal'])
  expect(played.defects).toHaveLength(1)
})

test.each<[string, Layer]>([
  [
    'throws',
    next => (request, response) => {
      next(request, response)
      throw new Error('planned')
    },
  ],
  [
    'returns a promise',
    ((next: Handler): unknown =>
      async (request: HttpRequest, response: ResponseSink) =>
        next(request, response)) as Layer,
  ],
  [
    'only aborts its answer',
    next => (request, response) => {
      const sink = next(request, response)
      response.responseAbort(new SallyportError('internal'))
      return sink
    },
  ],
])('P1: what a layer passes on before it %s ends', (_, layer) => {
  const played = begin(layer)
  REQUEST.requestData!(played.sink)
  REQUEST.requestEnd!(played.sink)
  expect(played.events.filter(event => event.includes('Abort'))).toEqual([
    'requestAbort internal',
    'responseAbort internal',
  ])
})

test('without layers there is nothing in between', () => {
  const { next } = ends()
  expect(shielded([], next, noLogger)).toBe(next)
})
