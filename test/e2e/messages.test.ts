import { afterAll, beforeAll, expect, it } from 'vitest'
import { ByteReader } from '../support/byte-reader.ts'
import type { Caller } from '../support/caller.ts'
import { dial } from '../support/caller-http1.ts'
import { bodyForm, chunk, collect, readBody, readHead, value, values } from '../support/http1-wire.ts'
import { describeThrough, http1Entries, ourEntries, Stack } from '../support/stack.ts'

let stack: Stack

beforeAll(async () => {
  stack = await Stack.start()
})
afterAll(() => stack?.stop())

/** The fields of an upstream's answer that a caller must see, without those that we or a proxy add. */
function picked(fields: readonly string[], ...names: string[]): string[] {
  return fields.filter((_, i) => names.includes((fields[i - (i % 2)] ?? '').toLowerCase()))
}

describeThrough(ourEntries, name => {
  let caller: Caller
  beforeAll(async () => {
    caller = await stack.caller(name)
  })

  it('keep-alive: many exchanges on one connection, upstream connections reused', async () => {
    const path = stack.upstream.on('keep-alive', request => request.answer(200, request.path))
    await caller.ask({ path })
    const before = stack.upstream.connections
    for (let i = 0; i < 20; i++) {
      const reply = await caller.ask({ path: `${path}?${i}` })
      expect(reply.content.toString()).toBe(`${path}?${i}`)
    }
    expect(stack.upstream.connections).toBe(before)
  })

  it('chunked down: the body arrives whole and in order', async () => {
    const path = stack.upstream.on('chunked-down', async request => {
      await request.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
      for (let i = 0; i < 50; i++) await request.write(chunk(Buffer.alloc(i * 37 + 1, i)))
      await request.write('0\r\n\r\n')
    })
    const { content, fields } = await caller.ask({ path })
    const expected = Buffer.concat(Array.from({ length: 50 }, (_, i) => Buffer.alloc(i * 37 + 1, i)))
    expect(content.equals(expected)).toBe(true)
    expect(value(fields, 'content-length')).toBeUndefined()
  })

  it('chunked up: a body of unknown length arrives whole and without a length', async () => {
    const path = stack.upstream.on('chunked-up', async request => {
      const body = await request.readAll()
      await request.answer(
        200,
        JSON.stringify({ length: value(request.fields, 'content-length') ?? null, body: body.toString() }),
      )
    })
    const exchange = caller.begin({ method: 'POST', path, stream: true })
    for (const part of ['one ', 'two ', 'three']) await exchange.write(Buffer.from(part))
    exchange.end()
    const reply = await exchange.reply
    expect(JSON.parse((await reply.readAll()).toString())).toEqual({ length: null, body: 'one two three' })
  })

  it('trailers down', async () => {
    const path = stack.upstream.on('trailers-down', request =>
      request.write(
        'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 42\r\nx-sum: 43\r\n\r\n',
      ),
    )
    const reply = await caller.ask({ path, fields: ['te', 'trailers'] })
    expect(reply.content.toString()).toBe('ok')
    expect(reply.trailers).toEqual(['x-sum', '42', 'x-sum', '43'])
    expect(value(reply.fields, 'x-sum')).toBeUndefined()
  })

  it('trailers up', async () => {
    const path = stack.upstream.on('trailers-up', async request => {
      await request.readAll()
      await request.answer(200, JSON.stringify(request.trailers))
    })
    const exchange = caller.begin({ method: 'POST', path, stream: true, fields: ['trailer', 'x-sum'] })
    await exchange.write(Buffer.from('body'))
    exchange.end(['x-sum', '42'])
    expect(JSON.parse((await (await exchange.reply).readAll()).toString())).toEqual(['x-sum', '42'])
  })

  it('Expect: 100-continue: the body goes out only after the 100', async () => {
    const path = stack.upstream.on('expect', async request => {
      if (value(request.fields, 'expect') !== undefined) await request.write('HTTP/1.1 100 Continue\r\n\r\n')
      await request.answer(200, await request.readAll())
    })
    const exchange = caller.begin({ method: 'POST', path, stream: true, fields: ['expect', '100-continue'] })
    await exchange.informed(100)
    await exchange.write(Buffer.from('after the 100'))
    exchange.end()
    expect((await (await exchange.reply).readAll()).toString()).toBe('after the 100')
  })

  it('Expect: 100-continue: a refusal comes instead of the 100', async () => {
    const path = stack.upstream.on('expect-refused', request => request.answer(417, 'no'))
    const exchange = caller.begin({ method: 'POST', path, stream: true, fields: ['expect', '100-continue'] })
    const reply = await exchange.reply
    expect(reply.status).toBe(417)
    expect((await reply.readAll()).toString()).toBe('no')
    expect(exchange.informational).toEqual([])
    caller.close()
    caller = await stack.caller(name)
  })

  it('103 early hints, before the answer', async () => {
    let go = () => {}
    const hinted = new Promise<void>(resolve => {
      go = resolve
    })
    const path = stack.upstream.on('early-hints', async request => {
      await request.write(
        'HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n\r\n',
      )
      await hinted
      await request.answer(200, 'done')
    })
    const exchange = caller.begin({ path })
    await exchange.informed(103)
    go()
    expect((await (await exchange.reply).readAll()).toString()).toBe('done')
    expect(exchange.informational.map(({ status }) => status)).toEqual([103])
    expect(values(exchange.informational[0]?.fields ?? [], 'link').join(', ')).toBe(
      '</a.css>; rel=preload, </b.js>; rel=preload',
    )
  })

  it('HEAD has the length of the GET and no body; the next exchange is not disturbed', async () => {
    const path = stack.upstream.on('head', request =>
      request.method === 'HEAD'
        ? request.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n')
        : request.answer(200, 'next'),
    )
    const head = await caller.ask({ method: 'HEAD', path })
    expect(head.status).toBe(200)
    expect(value(head.fields, 'content-length')).toBe('1000')
    expect(head.content.length).toBe(0)
    expect((await caller.ask({ path })).content.toString()).toBe('next')
  })

  it.each([204, 304])('%i has no body; the next exchange is not disturbed', async status => {
    const path = stack.upstream.on(`status-${status}`, request =>
      request.path.endsWith('?next')
        ? request.answer(200, 'next')
        : request.write(`HTTP/1.1 ${status} Whatever\r\netag: "abc"\r\n\r\n`),
    )
    const reply = await caller.ask({ path })
    expect(reply.status).toBe(status)
    expect(value(reply.fields, 'etag')).toBe('"abc"')
    expect(reply.content.length).toBe(0)
    expect((await caller.ask({ path: `${path}?next` })).content.toString()).toBe('next')
  })

  it.each(['FOO', 'PROPFIND', 'M-SEARCH', 'A_1'])('method %s is passed on', async method => {
    const path = stack.upstream.on('method', request => request.answer(200, request.method))
    expect((await caller.ask({ method, path })).content.toString()).toBe(method)
  })

  it('fields keep their order, the case of their values and their duplicates, both ways', async () => {
    const sent = [
      'x-b',
      'One',
      'x-a',
      'TWO',
      'x-b',
      'three, Four',
      'x-empty',
      '',
      '__proto__',
      'plain',
      'x-latin',
      'caf\u00e9',
    ]
    const answered = [
      'set-cookie',
      'a=1; Path=/',
      'x-z',
      'Zed',
      'set-cookie',
      'b=2',
      'x-y',
      'Why',
      'set-cookie',
      'a=1; Path=/',
    ]
    let seen: string[] = []
    const path = stack.upstream.on('fields', request => {
      seen = request.fields
      return request.answer(200, '', answered)
    })
    const reply = await caller.ask({ path, fields: sent })
    expect(picked(seen, 'x-b', 'x-a', 'x-empty', '__proto__', 'x-latin')).toEqual(sent)
    expect(picked(reply.fields, 'set-cookie', 'x-z', 'x-y')).toEqual(answered)
  })

  it.each([
    '/%7Euser//x/%E4;p=1?q=a+b%20c&&=;x',
    '/a%20b/~tilde/%41?%',
    "/!$&'()*+,;=:@?/?!$'()*+,;=:@[]{}|^`\"<>".replace(/["<>`{}|^[\]]/g, ''),
    '/x?',
    '/x??y=/../z',
  ])('path and query byte for byte: %s', async rest => {
    const base = stack.upstream.on('path', request => request.answer(200, 'no'))
    stack.upstream.answers.set(`${base}${rest}`.split('?')[0] ?? '', request => request.answer(200, request.path))
    const reply = await caller.ask({ path: `${base}${rest}` })
    expect(reply.content.toString()).toBe(`${base}${rest}`)
  })

  it("an answer before the request's end arrives whole, and the connection or stream ends cleanly", async () => {
    const path = stack.upstream.on('early', request => request.answer(413, 'too much', ['connection', 'close']))
    const exchange = caller.begin({ method: 'POST', path, stream: true })
    await exchange.write(Buffer.from('the first bytes of many'))
    const reply = await exchange.reply
    expect(reply.status).toBe(413)
    expect((await reply.readAll()).toString()).toBe('too much')
    caller.close()
    caller = await stack.caller(name)
    const next = stack.upstream.on('after-early', request => request.answer(200, 'fine'))
    expect((await caller.ask({ path: next })).content.toString()).toBe('fine')
  })

  it('traceparent passes; X-Request-Id is created and sent to both sides', async () => {
    let seen: string[] = []
    const path = stack.upstream.on('trace', request => {
      seen = request.fields
      return request.answer(200)
    })
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    await caller.ask({ path, fields: ['traceparent', traceparent] })
    expect(value(seen, 'traceparent')).toBe(traceparent)
    expect(values(seen, 'x-request-id')).toHaveLength(1)
    expect(value(seen, 'x-request-id')).not.toBe('')
  })
})

describeThrough(http1Entries, name => {
  it('pipelining: answers arrive in the order of the requests, though the upstream finishes them in another', async () => {
    const place = stack.place(name)
    const base = stack.upstream.on('pipelined', () => {})
    let second = () => {}
    const secondDone = new Promise<void>(resolve => {
      second = resolve
    })
    stack.upstream.answers.set(`${base}/1`, async request => {
      // Where the edge sends one at a time, the second request never begins before the first has ended.
      await Promise.race([secondDone, new Promise(resolve => setImmediate(resolve))])
      await request.answer(200, 'first')
    })
    stack.upstream.answers.set(`${base}/2`, async request => {
      await request.answer(200, `second ${await request.readAll()}`)
      second()
    })
    stack.upstream.answers.set(`${base}/3`, request => request.answer(200, 'third'))
    const socket = await dial(place)
    const head = (line: string, more = '') => `${line} HTTP/1.1\r\nhost: ${place.authority}\r\n${more}\r\n`
    socket.write(
      `${head(`GET ${base}/1`) + head(`POST ${base}/2`, 'content-length: 4\r\n')}body${head(`GET ${base}/3`)}`,
    )
    const reader = new ByteReader(socket)
    const bodies: string[] = []
    for (let i = 0; i < 3; i++) {
      const answer = await readHead(reader)
      const form = bodyForm(answer?.fields ?? [], true)
      bodies.push((await collect(readBody(reader, form, []))).toString())
    }
    socket.destroy()
    expect(bodies).toEqual(['first', 'second body', 'third'])
  })
})
