/** What a handler of undici is given, with an edge that the test plays. */
import { expect, test } from 'vitest'
import type { Handler, ResponseSink } from '../../../protocol/exchange.ts'
import { RuntimeDispatcher } from '../../../server/embed/dispatcher.ts'

test('a handler may transfer the memory of a chunk, which no other chunk shares', () => {
  let response: ResponseSink
  const edge: Handler = (_request, asked) => {
    response = asked
    return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
  }
  const sizes: number[] = []
  new RuntimeDispatcher(edge, 'demo', {}).dispatch(
    { method: 'GET', path: '/', origin: 'https://demo.example' },
    {
      onResponseData: (_, { buffer }) => {
        sizes.push(structuredClone(buffer as ArrayBuffer, { transfer: [buffer as ArrayBuffer] }).byteLength)
      },
      onResponseError() {},
    },
  )
  const slab = Buffer.alloc(64 * 1024)
  response!.responseHead({ status: 200, headers: [], bodyBytes: -1 })
  response!.responseData(slab.subarray(0, 32 * 1024))
  expect(sizes).toEqual([32 * 1024])
  expect(slab.length).toBe(64 * 1024)
})

test('a handler gets trailers without those that no answer may have', () => {
  let response: ResponseSink
  const edge: Handler = (_request, asked) => {
    response = asked
    return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
  }
  const ended: object[] = []
  new RuntimeDispatcher(edge, 'demo', {}).dispatch(
    { method: 'GET', path: '/', origin: 'https://demo.example' },
    { onResponseEnd: (_, trailers) => void ended.push({ ...trailers }), onResponseError() {} },
  )
  response!.responseHead({ status: 200, headers: [], bodyBytes: -1 })
  response!.responseEnd(['grpc-status', '0', 'sallyport-error', 'x', 'content-length', '3', 'x-forwarded-for', '::1'])
  expect(ended).toEqual([{ 'grpc-status': '0' }])
})
