/** One delivery of a stored webhook, to a receiver that a test plays. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test, vi } from 'vitest'
import { discarding } from '../../../protocol/base/guard.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, RequestSink } from '../../../protocol/exchange.ts'
import { encodeHead, keptHead } from '../../../server/inbox/head.ts'
import { deliverMessage } from '../../../server/inbox/outgoing.ts'
import { type InboxStore, StoreError } from '../../../server/inbox/store.ts'
import { EXCHANGE } from '../../support/ends.ts'
import { bytes, message, NOW } from './messages.ts'

const requestAbort = vi.fn()

/** A webhook of a head and two parts, the second of which is read after the first has been sent. */
function deliver(part: (n: number) => Uint8Array, given: Partial<RequestSink> = {}) {
  const head = encodeHead(keptHead(EXCHANGE), { trailers: [], parts: 3, bodyBytes: 8 })
  const store = { part: async (_id: string, n: number) => (n === 0 ? head : part(n)) } as unknown as InboxStore
  const handler: Handler = (_request, response) => ({
    ...discarding(response),
    requestData: chunk => response.requestConsumed(chunk.length),
    requestAbort,
    ...given,
  })
  const stored = { ...message('w-1', { parts: 3, bytes: head.length + 8 }), state: 'waiting', changed: NOW } as const
  return deliverMessage(stored, {
    ...{ handler, store, mac: undefined, logger: noLogger, attemptMs: 100, now: () => NOW, tracing: undefined },
  })
}

const body = (): Uint8Array => bytes('body')

test('a receiver that does not answer in time has failed, and hears it', async () => {
  expect(await deliver(body)).toMatchObject({ kind: 'failed', reason: 'upstream-timeout' })
  expect(requestAbort).toHaveBeenLastCalledWith(expect.objectContaining({ reason: 'upstream-timeout' }))
})

test('if the store cannot be read in the middle of a delivery, that is no failure of the receiver, which hears it', async () => {
  const away = new StoreError('away', 'on purpose')
  const part = (n: number) => {
    if (n === 2) throw away
    return body()
  }
  await expect(deliver(part)).rejects.toBe(away)
  expect(requestAbort).toHaveBeenCalledOnce()
})

test('P1 if our own code throws, the delivery has failed', async () => {
  const requestEnd = () => {
    throw new Error('thrown on purpose')
  }
  expect(await deliver(body, { requestEnd })).toMatchObject({ kind: 'failed', reason: 'internal' })
  expect(requestAbort).toHaveBeenCalledOnce()
})

test('what its receiver has taken is kept nowhere while its answer is awaited', async () => {
  const parts: WeakRef<Uint8Array>[] = []
  const part = () => {
    const bytes = new Uint8Array(512 * 1024)
    parts.push(new WeakRef(bytes))
    return bytes
  }
  const { promise: sent, resolve } = Promise.withResolvers<void>()
  const delivered = deliver(part, { requestEnd: () => resolve() })
  await sent
  // A reference that was just used is kept until the turn is over.
  await new Promise(setImmediate)
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  expect(parts.map(ref => ref.deref())).toEqual([undefined, undefined])
  expect(await delivered).toMatchObject({ reason: 'upstream-timeout' })
})
