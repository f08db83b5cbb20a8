/** What a `fetch` into a runtime reports if its exchange fails, with an edge that the test plays. */
import { expect, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { Handler, RequestSink, ResponseSink } from '../../../protocol/exchange.ts'
import { fetchRuntime } from '../../../server/embed/fetch.ts'

const sink: RequestSink = { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }

/** A fetch, and the edge's response sink for it. */
function begin(given: Partial<RequestSink> = {}) {
  const stop = new AbortController()
  let response: ResponseSink | undefined
  const edge: Handler = (_request, asked) => {
    response = asked
    return { ...sink, ...given }
  }
  const request = new Request('https://demo.example/a', { signal: stop.signal })
  const answer = fetchRuntime(edge, 'demo', request, {})
  return { stop, response: response!, answer }
}

test('rejects with the reason why the exchange broke before its head', async () => {
  const { response, answer } = begin()
  const error = new SallyportError('session-lost')
  response.responseAbort(error)
  await expect(answer).rejects.toBe(error)
})

test('the body rejects with the reason why it broke off', async () => {
  const { response, answer } = begin()
  response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
  const reading = (await answer).text()
  const error = new SallyportError('session-lost')
  response.responseAbort(error)
  await expect(reading).rejects.toBe(error)
})

test('rejects with the reason of the abort, and with any error while it is passed on', async () => {
  const right = begin()
  right.stop.abort(new Error('enough'))
  await expect(right.answer).rejects.toThrow('enough')
  const wrong = begin({
    requestAbort() {
      throw new Error('thrown on purpose')
    },
  })
  wrong.stop.abort(new Error('enough'))
  await expect(wrong.answer).rejects.toThrow('thrown on purpose')
})
