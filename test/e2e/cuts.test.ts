// @module-tag slow
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Caller } from '../support/caller.ts'
import { chunk, value } from '../support/http1-wire.ts'
import { allEntries, describeThrough, Stack } from '../support/stack.ts'

let stack: Stack

beforeAll(async () => {
  stack = await Stack.start()
})
afterAll(() => stack?.stop())

describeThrough(allEntries, name => {
  const caller = (): Promise<Caller> => stack.caller(name)

  describe('the caller leaves: the upstream request is aborted', () => {
    it('before the head of the answer', async () => {
      const arrived = Promise.withResolvers<void>()
      const gone = Promise.withResolvers<void>()
      const path = stack.upstream.on('gone-early', async request => {
        arrived.resolve()
        await request.gone()
        gone.resolve()
      })
      const exchange = (await caller()).begin({ path })
      await arrived.promise
      exchange.abort()
      await gone.promise
    })

    it('in the middle of the answer', async () => {
      const gone = Promise.withResolvers<void>()
      const path = stack.upstream.on('gone-midway', async request => {
        await request.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
        await request.write(chunk(Buffer.from('first')))
        await request.gone()
        gone.resolve()
      })
      const exchange = (await caller()).begin({ path })
      const reply = await exchange.reply
      for await (const part of reply.body) {
        expect(part.toString()).toBe('first')
        break
      }
      exchange.abort()
      await gone.promise
    })

    it('in the middle of its own body', async () => {
      const gone = Promise.withResolvers<void>()
      const first = Promise.withResolvers<void>()
      const path = stack.upstream.on('gone-body', async request => {
        try {
          for await (const _ of request.body) first.resolve()
          gone.reject(new Error('the body ended cleanly'))
        } catch {
          gone.resolve()
        }
      })
      const exchange = (await caller()).begin({ method: 'POST', path, stream: true })
      await exchange.write(Buffer.from('some of it'))
      await first.promise
      exchange.abort()
      await gone.promise
    })
  })

  describe('the upstream breaks midway: the caller sees a cut, never a clean end', () => {
    it.each([
      ['with a length', 'content-length: 100', 'ten bytes.'],
      ['chunked, between chunks', 'transfer-encoding: chunked', chunk(Buffer.from('some'))],
      ['chunked, within a chunk', 'transfer-encoding: chunked', 'ff\r\nsome'],
    ])('%s', async (_, field, bytes) => {
      const path = stack.upstream.on('cut', async request => {
        await request.write(`HTTP/1.1 200 OK\r\n${field}\r\n\r\n`)
        await request.write(bytes)
        request.socket.end()
      })
      const exchange = (await caller()).begin({ path })
      const reply = await exchange.reply
      expect(reply.status).toBe(200)
      await expect(reply.readAll()).rejects.toThrow(/cut|reset|closed|aborted/i)
    })

    it('by a reset', async () => {
      const go = Promise.withResolvers<void>()
      const path = stack.upstream.on('reset', async request => {
        await request.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
        await request.write(chunk(Buffer.from('some')))
        await go.promise
        request.socket.resetAndDestroy()
      })
      const reply = await (await caller()).begin({ path }).reply
      go.resolve()
      await expect(reply.readAll()).rejects.toThrow(/cut|reset|closed|aborted|early/i)
    })
  })

  describe('the upstream breaks before the head', () => {
    it.each([
      ['closes', ''],
      ['sends half a head', 'HTTP/1.1 200 OK\r\ncontent-le'],
      ['sends what is no HTTP', 'hello there\r\n\r\n'],
    ])('%s: 502 upstream-broken', async (_, bytes) => {
      const path = stack.upstream.on('no-head', async request => {
        await request.readAll()
        if (bytes !== '') await request.write(bytes)
        request.socket.end()
      })
      const reply = await (await caller()).ask({ method: 'POST', path, body: 'once' })
      expect(reply.status).toBe(502)
      expect(value(reply.fields, 'sallyport-error')).toBe('upstream-broken')
      expect(JSON.parse(reply.content.toString()).code).toBe('upstream-broken')
    })
  })
})
