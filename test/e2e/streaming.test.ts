import { createHash } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { patternChunks, patternDigest } from '../../cli/demo/pattern.ts'
import type { Caller } from '../support/caller.ts'
import { chunk, value } from '../support/http1-wire.ts'
import { long } from '../support/needs.ts'
import { allEntries, describeThrough, Stack } from '../support/stack.ts'

const MIB = 1024 * 1024
const BODY_BYTES = long ? 1024 * MIB : 100 * MIB

let stack: Stack

beforeAll(async () => {
  stack = await Stack.start()
})
afterAll(() => stack?.stop())

/** Lets the upstream go on only when the caller says so. */
class Turns {
  readonly #waiting: Array<() => void> = []
  #ready = 0
  #closed = false

  give(): void {
    const next = this.#waiting.shift()
    if (next) next()
    else this.#ready++
  }

  async take(): Promise<boolean> {
    if (this.#ready > 0) this.#ready--
    else if (!this.#closed) await new Promise<void>(resolve => this.#waiting.push(resolve))
    return !this.#closed
  }

  close(): void {
    this.#closed = true
    for (const wake of this.#waiting.splice(0)) wake()
  }
}

describeThrough(allEntries, name => {
  let caller: Caller
  beforeAll(async () => {
    caller = await stack.caller(name)
  })

  it.each([
    ['server-sent events', 'text/event-stream', (i: number) => `data: ${i}\n\n`],
    ['an endless download', 'application/octet-stream', (i: number) => String(i % 10)],
  ])('%s: the upstream sends the next only when the caller has the last', async (_, type, text) => {
    const turns = new Turns()
    const path = stack.upstream.on('by-cause', async request => {
      await request.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`)
      for (let i = 0; await turns.take(); i++) await request.write(chunk(Buffer.from(text(i))))
      await request.write('0\r\n\r\n')
    })
    const reply = await caller.begin({ path, fields: ['accept', type] }).reply
    expect(value(reply.fields, 'content-type')).toBe(type)
    let held = ''
    let expected = text(0)
    let count = 1
    turns.give()
    for await (const part of reply.body) {
      held += part
      if (held !== expected) continue
      if (count === 25) turns.close()
      else {
        expected += text(count++)
        turns.give()
      }
    }
    expect(held).toBe(expected)
    expect(count).toBe(25)
  })

  it('a body up, step by step: the caller sends the next only when the upstream has the last', async () => {
    const turns = new Turns()
    const path = stack.upstream.on('up-by-cause', async request => {
      let bytes = 0
      for await (const part of request.body) {
        bytes += part.length
        turns.give()
      }
      await request.answer(200, String(bytes))
    })
    const exchange = caller.begin({ method: 'POST', path, stream: true })
    for (let i = 0; i < 25; i++) {
      await exchange.write(Buffer.from('.'))
      await turns.take()
    }
    exchange.end()
    expect((await (await exchange.reply).readAll()).toString()).toBe('25')
  })

  it(`${BODY_BYTES / MIB} MiB down, checksummed`, async () => {
    const path = stack.upstream.on('down', async request => {
      await request.write(`HTTP/1.1 200 OK\r\ncontent-length: ${BODY_BYTES}\r\n\r\n`)
      for (const part of patternChunks(BODY_BYTES)) await request.write(part)
    })
    const reply = await caller.begin({ path }).reply
    expect(value(reply.fields, 'content-length')).toBe(String(BODY_BYTES))
    const hash = createHash('sha256')
    for await (const part of reply.body) hash.update(part)
    expect(hash.digest('hex')).toBe(patternDigest(BODY_BYTES))
  })

  it(`${BODY_BYTES / MIB} MiB up, checksummed`, async () => {
    const path = stack.upstream.on('up', async request => {
      const hash = createHash('sha256')
      for await (const part of request.body) hash.update(part)
      await request.answer(200, `${value(request.fields, 'content-length')} ${hash.digest('hex')}`)
    })
    const fields = ['content-length', String(BODY_BYTES)]
    const exchange = caller.begin({ method: 'POST', path, stream: true, fields })
    for (const part of patternChunks(BODY_BYTES)) await exchange.write(part)
    exchange.end()
    const seen = (await (await exchange.reply).readAll()).toString()
    expect(seen).toBe(`${BODY_BYTES} ${patternDigest(BODY_BYTES)}`)
  })
})
