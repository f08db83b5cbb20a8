import { afterEach, describe, expect, test } from 'vitest'
import { collectGarbage as collect } from '../../load-tests/lib/garbage.ts'
import type { Server } from '../../server/server.ts'
import { DOMAIN, dial, hanging, startServer } from './fixture.ts'

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

test('an abort by the embedder ends its fetch, even after the Request has been garbage-collected', async () => {
  server = await startServer()
  const { handler, begun } = hanging()
  const client = await dial(server, { handler })
  const aborter = new AbortController()
  const answered = server.fetch('demo', new Request(`http://demo.${DOMAIN}/`, { signal: aborter.signal }))
  const failed = expect(answered).rejects.toThrow('gone')
  await begun
  for (let i = 0; i < 3; i++) await collect()
  aborter.abort(new Error('gone'))
  await failed
  await expect.poll(() => client.session.streams).toBe(0)
})

describe('an answer with more to come', () => {
  /** Nothing but what `keep` returns holds the response. */
  const fetchOpen = async <Kept>(keep: (response: Response) => Kept) => {
    server = await startServer()
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const answered = server.fetch('demo', `http://demo.${DOMAIN}/`)
    const sink = await begun
    sink.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    sink.responseData(Buffer.from('a'))
    return { kept: keep(await answered), sink, client }
  }

  test.each<[string, (response: Response) => void]>([
    ['is not looked at', () => {}],
    ['had a reader', response => response.body!.getReader().releaseLock()],
    ['was read in part', response => void response.body!.getReader().read()],
    ['was copied', response => void response.clone()],
  ])('ends when nobody can read it, where it %s', async (_name, use) => {
    const { client } = await fetchOpen(use)
    const streams = async () => {
      await collect()
      return client.session.streams
    }
    await expect.poll(streams).toBe(0)
  })

  test.each<[string, (response: Response) => () => Promise<string>]>([
    ['the response', response => () => response.text()],
    [
      'its body',
      ({ body }) =>
        () =>
          new Response(body).text(),
    ],
    ['a reader', ({ body }) => readerOf(body!)],
    ['a promise of all of it', response => promised(response.text())],
    ['a copy', response => promised(response.clone().text())],
  ])('goes on for a holder of %s', async (_name, keep) => {
    const { kept, sink } = await fetchOpen(keep)
    for (let i = 0; i < 3; i++) await collect()
    sink.responseData(Buffer.from('b'))
    for (let i = 0; i < 3; i++) await collect()
    sink.responseEnd([])
    expect(await kept()).toBe('ab')
  })
})

const promised = (text: Promise<string>) => () => text

function readerOf(body: ReadableStream<Uint8Array>): () => Promise<string> {
  const reader = body.getReader()
  return async () => {
    let text = ''
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return text
      text += Buffer.from(value).toString()
    }
  }
}
