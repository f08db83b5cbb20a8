import { expect, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { ExchangeRecord } from '../../../protocol/exchange.ts'
import { answerProblem } from '../../../protocol/http/problem.ts'
import { BodyBytes, record } from '../../../protocol/http/record.ts'
import { EXCHANGE, ends } from '../../support/ends.ts'

function begin() {
  const records: ExchangeRecord[] = []
  const both = ends()
  const request = { ...EXCHANGE, runtime: 'demo', session: 's-1' }
  const sink = record(one => void records.push(one))(both.next)(request, both.front)
  return { both, sink, records, request }
}

const chunk = (bytes: number) => Buffer.alloc(bytes)

test('an exchange is reported once, when it is over, as it arrived, with the notes of later layers', () => {
  const { both, sink, records, request } = begin()
  request.method = 'PUT'
  request.path = '/rewritten'
  both.request!.notes!.route = 'all'
  both.request!.notes!.session = 's-2'
  sink.requestData(chunk(3))
  both.response.responseHead({ status: 201, headers: [], bodyBytes: 5 })
  both.response.responseData(chunk(5))
  expect(records).toEqual([])
  both.response.responseEnd([])
  expect(records).toEqual([
    {
      requestId: 'r-1',
      runtime: 'demo',
      route: 'all',
      session: 's-2',
      method: 'GET',
      host: 'demo.example',
      path: '/x',
      caller: '192.0.2.7',
      status: 201,
      code: undefined,
      cut: false,
      durationMs: expect.any(Number),
      bytesIn: 3,
      bytesOut: 5,
      upgrade: false,
    },
  ])
})

test('bytes are counted as they pass, until the exchange is over', () => {
  const bytes = new BodyBytes()
  const records: ExchangeRecord[] = []
  const both = ends()
  const handler = record(one => void records.push(one), bytes)(both.next)
  const sink = handler({ ...EXCHANGE }, both.front)
  const { response } = both
  const other = handler({ ...EXCHANGE }, both.front)
  sink.requestData(chunk(3))
  other.requestData(chunk(4))
  response.responseHead({ status: 413, headers: [], bodyBytes: 7 })
  expect(bytes).toEqual({ bodyBytesIn: 7, bodyBytesOut: 0 })
  response.responseData(chunk(7))
  expect(bytes).toEqual({ bodyBytesIn: 7, bodyBytesOut: 7 })
  response.responseEnd([])
  sink.requestData(chunk(100))
  other.requestAbort(new SallyportError('cancelled'))
  const sum = (of: 'bytesIn' | 'bytesOut') => records.reduce((all, one) => all + one[of], 0)
  expect(bytes).toEqual({ bodyBytesIn: sum('bytesIn'), bodyBytesOut: sum('bytesOut') })
})

test.each([
  ['a failure that is answered behind', 502, 'upstream-refused', false],
  ['one before a head', 502, 'upstream-refused', false],
  ['one in the midst of a body', 200, 'upstream-refused', true],
  ['a caller who leaves before a head', 0, 'cancelled', false],
  ['a caller who leaves in the midst of a body', 200, 'cancelled', false],
])('%s', (what, status, code, cut) => {
  const { both, sink, records, request } = begin()
  const error = new SallyportError('upstream-refused')
  if (what.endsWith('body')) both.response.responseHead({ status: 200, headers: [], bodyBytes: 5 })
  if (what.startsWith('a caller')) sink.requestAbort(new SallyportError('cancelled'))
  else if (what.startsWith('a failure')) answerProblem(both.response, request, error)
  else both.response.responseAbort(error)
  expect(records.map(one => [one.status, one.code, one.cut, one.session])).toEqual([[status, code, cut, 's-1']])
})

test('without a listener there is no layer at all', () => {
  const { next } = ends()
  expect(record(undefined)(next)).toBe(next)
})
