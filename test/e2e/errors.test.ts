import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createRouter } from '../../router/index.ts'
import type { Caller, Reply } from '../support/caller.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { value, values } from '../support/http1-wire.ts'
import { DOMAIN } from '../support/secrets.ts'
import { allEntries, describeThrough, Stack, UI_ORIGIN } from '../support/stack.ts'

let stack: Stack

beforeAll(async () => {
  stack = await Stack.start()
})
afterAll(() => stack?.stop())

/** Checks the form of an error answer and returns its code. */
function problemOf(reply: Reply & { content: Buffer }): string {
  expect(value(reply.fields, 'content-type')).toBe('application/problem+json')
  const problem = JSON.parse(reply.content.toString())
  expect(problem).toEqual({
    type: `urn:sallyport:error:${problem.code}`,
    title: expect.any(String),
    status: reply.status,
    code: problem.code,
    requestId: expect.stringMatching(/^[\w-]{8,}$/),
  })
  expect(value(reply.fields, 'sallyport-error')).toBe(problem.code)
  expect(reply.content.toString()).not.toMatch(/127\.0\.0\.1|node_modules|\.ts|at /)
  return problem.code
}

describeThrough(allEntries, name => {
  let caller: Caller
  beforeAll(async () => {
    caller = await stack.caller(name)
  })

  it('an upstream that refuses: 502 with CORS for the origin of the route', async () => {
    const reply = await caller.ask({ path: '/nobody-there', fields: ['origin', UI_ORIGIN] })
    expect([reply.status, problemOf(reply)]).toEqual([502, 'upstream-refused'])
    expect(value(reply.fields, 'access-control-allow-origin')).toBe(UI_ORIGIN)
    expect(value(reply.fields, 'access-control-allow-credentials')).toBe('true')
    expect(values(reply.fields, 'vary').join(',').toLowerCase()).toContain('origin')
  })

  it('another origin gets the error without CORS', async () => {
    const reply = await caller.ask({ path: '/nobody-there', fields: ['origin', 'https://evil.example'] })
    expect([reply.status, problemOf(reply)]).toEqual([502, 'upstream-refused'])
    expect(value(reply.fields, 'access-control-allow-origin')).toBeUndefined()
  })

  it('a preflight is answered 204 while the target is down', async () => {
    const fields = ['origin', UI_ORIGIN, 'access-control-request-method', 'POST']
    const reply = await caller.ask({ method: 'OPTIONS', path: '/nobody-there', fields })
    expect(reply.status).toBe(204)
    expect(value(reply.fields, 'access-control-allow-origin')).toBe(UI_ORIGIN)
  })

  it('no route: 404; HEAD has no body', async () => {
    const reply = await caller.ask({ path: '/elsewhere' })
    expect([reply.status, problemOf(reply)]).toEqual([404, 'no-route'])
    const head = await caller.ask({ method: 'HEAD', path: '/elsewhere' })
    expect([head.status, head.content.length]).toEqual([404, 0])
    expect(value(head.fields, 'sallyport-error')).toBe('no-route')
  })

  it("an upstream's own sallyport-error field is removed", async () => {
    const path = stack.upstream.on('own-field', request => request.answer(500, 'mine', ['sallyport-error', 'forged']))
    const reply = await caller.ask({ path })
    expect([reply.status, reply.content.toString()]).toEqual([500, 'mine'])
    expect(value(reply.fields, 'sallyport-error')).toBeUndefined()
  })
})

describeThrough(['tunnel, HTTP/1.1', 'tunnel, HTTP/2'], name => {
  const many = new Array(240).fill('x-a')
  it.each([
    ['bad-request', 400, '/nobody-there/a#x', []],
    ['uri-too-long', 414, `/nobody-there?${'x'.repeat(9000)}`, []],
    ['head-too-large', 431, '/nobody-there', many],
    ['head-too-large', 431, '/nobody-there', ['x-a', 'x'.repeat(17_000)]],
  ] as const)(
    'a head that gets no further: %s %i, with CORS for the origin of its route',
    async (code, status, path, more) => {
      const caller = await stack.caller(name)
      const reply = await caller.ask({ path, fields: ['origin', UI_ORIGIN, ...more] })
      expect([reply.status, problemOf(reply)]).toEqual([status, code])
      expect(value(reply.fields, 'access-control-allow-origin')).toBe(UI_ORIGIN)
      const again = await stack.caller(name)
      const other = await again.ask({ path, fields: ['origin', 'https://evil.example', ...more] })
      expect([other.status, value(other.fields, 'access-control-allow-origin')]).toEqual([status, undefined])
    },
  )
})

describe('the public edge', () => {
  it('a host outside our domains: 404 unknown-host', async () => {
    const caller = await Http1Caller.connect({ ...stack.pair.place, authority: 'demo.elsewhere.test' }).catch(
      () => undefined,
    )
    // The certificate does not name it either; a caller that does not check still gets the error.
    expect(caller).toBeUndefined()
    const ours = await Http1Caller.connect(stack.pair.place)
    ours.socket.write('GET / HTTP/1.1\r\nhost: demo.elsewhere.test\r\n\r\n')
    const reply = await ours.ask({ path: '/' })
    expect([reply.status, problemOf(reply)]).toEqual([404, 'unknown-host'])
    ours.close()
  })

  it('a runtime that has never connected: 503 runtime-offline with Retry-After', async () => {
    const caller = await Http1Caller.connect(stack.pair.placeOf('nobody'))
    const reply = await caller.ask({ path: '/app-proxy' })
    expect([reply.status, problemOf(reply)]).toEqual([503, 'runtime-offline'])
    expect(Number(value(reply.fields, 'retry-after'))).toBeGreaterThan(0)
    caller.close()
  })

  it('a runtime that has left: 503 with the CORS policy that it had published, and its preflights are answered', async () => {
    const cors = { origins: [UI_ORIGIN], credentials: true }
    const target = createRouter({
      routes: { routes: [{ name: 'a', match: { path: '/app-proxy' }, target: 'http://127.0.0.1:1', cors }] },
    })
    const tunnel = await stack.pair.connect('leaver', target)
    const caller = await Http1Caller.connect(stack.pair.placeOf('leaver'))
    expect((await caller.ask({ path: '/app-proxy' })).status).toBe(502)
    await tunnel.close({ graceMs: 0 })
    const gone = await caller.ask({ path: '/app-proxy/api', fields: ['origin', UI_ORIGIN] })
    expect([gone.status, problemOf(gone)]).toEqual([503, 'runtime-offline'])
    expect(value(gone.fields, 'access-control-allow-origin')).toBe(UI_ORIGIN)
    const fields = ['origin', UI_ORIGIN, 'access-control-request-method', 'POST']
    const preflight = await caller.ask({ method: 'OPTIONS', path: '/app-proxy/api', fields })
    expect([preflight.status, value(preflight.fields, 'access-control-allow-origin')]).toEqual([204, UI_ORIGIN])
    caller.close()
  })

  it(`a name under ${DOMAIN} that is not a DNS label: 404`, async () => {
    const caller = await Http1Caller.connect(stack.pair.place)
    caller.socket.write(`GET / HTTP/1.1\r\nhost: a.b.${DOMAIN}\r\n\r\n`)
    const reply = await caller.ask({ path: '/' })
    expect([reply.status, problemOf(reply)]).toEqual([404, 'unknown-host'])
    caller.close()
  })
})
