/** What a `fetch` into a runtime reports if its exchange fails, with an edge that the test plays. */
import { describe, expect, test } from 'vitest'
import { collectGarbage } from '../../../load-tests/lib/garbage.ts'
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

test('nothing is kept of a fetch whose reader leaves while it waits for more', async () => {
  const left = async () => {
    const { response, answer } = begin()
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    const reader = (await answer).body!.getReader()
    const waiting = reader.read()
    await reader.cancel()
    expect((await waiting).done).toBe(true)
    return new WeakRef(response)
  }
  const fetches = await Promise.all(Array.from({ length: 10 }, left))
  const kept = async () => {
    await collectGarbage()
    return fetches.filter(fetch => fetch.deref() !== undefined)
  }
  await expect.poll(kept).toEqual([])
})

test.each(['waits for it', 'comes when it waits', 'waits for it when the response has ended'])(
  'a reader may transfer the memory of what it reads, which no other chunk shares: it %s',
  async when => {
    const slab = Buffer.alloc(64 * 1024, 'a')
    const { response, answer } = begin()
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    const reader = (await answer).body!.getReader()
    const asked = when === 'comes when it waits' ? reader.read() : undefined
    response.responseData(slab.subarray(0, 32 * 1024))
    if (when.endsWith('has ended')) response.responseEnd([])
    const { buffer } = (await (asked ?? reader.read())).value!
    expect(structuredClone(buffer, { transfer: [buffer] }).byteLength).toBe(32 * 1024)
    expect(slab.length).toBe(64 * 1024)
  },
)

describe('a body that its reader has not asked for', () => {
  const body = Buffer.from(Array.from({ length: 50_000 }, (_, i) => i % 251))

  /** A response whose body has arrived in pieces of one byte, unread. */
  async function arrived() {
    let credit = 0
    const { response, answer } = begin({
      responseConsumed(bytes) {
        credit += bytes
      },
    })
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    const reader = (await answer).body!.getReader()
    for (let at = 0; at < body.length; at++) response.responseData(body.subarray(at, at + 1))
    expect(credit).toBe(0)
    return { response, reader, credit: () => credit }
  }

  test.each(['before', 'after'])('waits in a few buffers, and is credited as it is read: %s its end', async when => {
    const { response, reader, credit } = await arrived()
    if (when === 'after') response.responseEnd([])
    const pieces: Uint8Array[] = []
    for (let bytes = 0; bytes < body.length; ) {
      const { value } = await reader.read()
      pieces.push(value!)
      bytes += value!.length
      expect(credit()).toBe(when === 'after' ? body.length : bytes)
    }
    expect(pieces.length).toBeLessThanOrEqual(body.length / 2048)
    expect(pieces.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)).toBeLessThanOrEqual(2 * body.length)
    expect(body.equals(Buffer.concat(pieces))).toBe(true)
    if (when === 'before') {
      const last = reader.read()
      response.responseData(Buffer.from('more'))
      expect(Buffer.from((await last).value!).toString()).toBe('more')
      response.responseEnd([])
      expect(credit()).toBe(body.length + 4)
    }
    expect((await reader.read()).done).toBe(true)
  })

  test('is dropped when the response breaks off', async () => {
    const { response, reader } = await arrived()
    const error = new SallyportError('session-lost')
    response.responseAbort(error)
    await expect(reader.read()).rejects.toBe(error)
  })
})
