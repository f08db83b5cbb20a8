import { describe, expect, it } from 'vitest'
import { compileTable } from '../../router/compile.ts'
import { capturesOf, matchRequest } from '../../router/match.ts'
import type { Route, RouteMatch } from '../../router/table.ts'

/** A table whose routes are named after their conditions. */
function tableOf(matches: Record<string, RouteMatch>, more: Partial<Route> = {}) {
  const routes = Object.entries(matches).map(([name, match]) => ({ name, match, target: 'http://up:80', ...more }))
  return compileTable({ routes })
}

/** From `METHOD host/path` to the name of the route, or another outcome. */
function lead(table: ReturnType<typeof tableOf>, line: string, headers: string[] = []): string {
  const [, method = 'GET', authority = '', path = ''] = /^(?:([A-Z]+) )?([^/]*)(\/.*)$/.exec(line) ?? []
  const match = matchRequest(table, { method, authority, path, headers })
  if (match.kind === 'method') return `405 ${match.allow}`
  return match.kind === 'route' ? match.route.name : match.kind
}

describe('paths', () => {
  it('match in whole segments from the start, the longest first', () => {
    const table = tableOf({ root: { path: '/' }, app: { path: '/app-proxy' }, api: { path: '/app-proxy/api' } })
    expect(lead(table, '/app-proxy')).toBe('app')
    expect(lead(table, '/app-proxy/')).toBe('app')
    expect(lead(table, '/app-proxy?x=/api')).toBe('app')
    expect(lead(table, '/app-proxyx')).toBe('root')
    expect(lead(table, '/app-proxy/apix')).toBe('app')
    expect(lead(table, '/app-proxy/api/x/y')).toBe('api')
    expect(lead(table, '/x/app-proxy')).toBe('root')
    expect(lead(table, '/APP-PROXY')).toBe('root')
  })

  it('that end with a slash do not match the bare name', () => {
    const table = tableOf({ workflows: { path: '/workflows/' } })
    expect(lead(table, '/workflows/')).toBe('workflows')
    expect(lead(table, '/workflows/a')).toBe('workflows')
    expect(lead(table, '/workflows')).toBe('none')
    expect(lead(table, '/workflowsx/')).toBe('none')
  })

  it('capture one segment each, and a literal beats only captures of the same length', () => {
    const table = tableOf({
      hook: { path: '/webhooks/{namespace}/{eventSource}' },
      list: { path: '/webhooks/list' },
      demo: { path: '/webhooks/demo/{eventSource}' },
    })
    expect(lead(table, '/webhooks/ns/push/x')).toBe('hook')
    expect(lead(table, '/webhooks/list')).toBe('list')
    expect(lead(table, '/webhooks/list/push')).toBe('hook')
    expect(lead(table, '/webhooks/demo/push')).toBe('demo')
    expect(lead(table, '/webhooks/ns')).toBe('none')
    expect(lead(table, '/webhooks//push')).toBe('ambiguous')
    const match = matchRequest(table, { method: 'GET', authority: 'x', path: '/webhooks/ns/push/x?q', headers: [] })
    const route = match.kind === 'route' ? match.route : undefined
    expect(capturesOf(route!, '/webhooks/ns/push/x?q')).toEqual({ namespace: 'ns', eventSource: 'push' })
  })

  it('are looked up in bounded time, however many segments a request has', () => {
    const table = tableOf({
      one: { path: '/{a}/{b}/{c}/{d}' },
      two: { path: '/a/{b}/a/{d}' },
      three: { path: '/a/a/a/a' },
    })
    expect(lead(table, `/${'a/'.repeat(4000)}`)).toBe('three')
    expect(lead(table, `/${'b/'.repeat(4000)}`)).toBe('one')
  })

  it('that can be read in two ways are accepted only if both lead to the same route', () => {
    const table = tableOf({ app: { path: '/app-proxy' }, admin: { path: '/app-proxy/admin' }, rest: { path: '/' } })
    expect(lead(table, '/app-proxy/x%2fy')).toBe('app')
    expect(lead(table, '/app-proxy//x;v=1')).toBe('app')
    expect(lead(table, '/app-proxy/%61ll')).toBe('app')
    for (const path of [
      '/app-proxy/%61dmin',
      '/app-proxy/admin%0a',
      '/app-proxy/adm%FFin',
      '/app-proxy/%3?/admin',
      '/app-proxy//admin',
      '/app-proxy%2fadmin',
      '/app-proxy/admin;x',
      '//app-proxy',
      '/app-proxy/a/../b',
    ]) {
      expect(lead(table, path), path).toBe('ambiguous')
    }
  })
})

describe('an empty segment', () => {
  const table = compileTable({
    routes: [
      { name: 'signed', match: { path: '/hooks/{sender}' }, answer: { status: 401 } },
      { name: 'open', match: { path: '/items/{id}' }, target: 'http://a:1' },
      { name: 'list', match: { path: '/list/' }, target: 'http://a:1' },
      { name: 'entry', match: { path: '/list/{id}' }, answer: { status: 401 } },
      { name: 'inner', match: { path: '/a/{x}/b' }, target: 'http://a:1' },
      { name: 'rest', match: {}, target: 'http://a:1' },
    ],
  })

  it('is a name for some servers, so it gets around no route that demands something', () => {
    expect(lead(table, '/hooks/x')).toBe('signed')
    for (const path of ['/hooks/', '/hooks/?x', '/hooks//', '/hooks/;x', '/hooks%2f'])
      expect(lead(table, path), path).toBe('ambiguous')
  })

  it('is none at the end where the route demands nothing, or the table has the slash, or at the root', () => {
    expect(lead(table, '/items/')).toBe('rest')
    expect(lead(table, '/list/')).toBe('list')
    expect(lead(table, '/')).toBe('rest')
    expect(lead(table, '/hooks')).toBe('rest')
  })

  it('in the middle must lead to the same route', () => {
    expect(lead(table, '/a//b')).toBe('ambiguous')
    expect(lead(table, '/a//c')).toBe('rest')
  })
})

describe('methods', () => {
  it('are checked on the longest path only, and Allow names all that it accepts', () => {
    const table = tableOf({
      read: { path: '/a', methods: ['GET'] },
      write: { path: '/a', methods: ['POST', 'PUT'] },
      all: { path: '/' },
    })
    expect(lead(table, 'GET /a')).toBe('read')
    expect(lead(table, 'PUT /a/x')).toBe('write')
    expect(lead(table, 'DELETE /a')).toBe('405 GET, POST, PUT')
  })

  it('may be any token', () => {
    expect(lead(tableOf({ foo: { path: '/a', methods: ['FOO'] } }), 'FOO /a')).toBe('foo')
  })

  it('give way to any other route of the same path that accepts all', () => {
    const table = tableOf({ all: { path: '/a' }, post: { path: '/a', methods: ['POST'] } })
    expect(lead(table, 'POST /a')).toBe('post')
    expect(lead(table, 'GET /a')).toBe('all')
  })

  it('let a preflight through for a method that the route accepts, if it has CORS', () => {
    const match = { api: { path: '/a', methods: ['POST'] } }
    const ask = ['origin', 'https://ui', 'access-control-request-method', 'POST']
    const withCors = tableOf(match, { cors: { origins: ['https://ui'] } })
    expect(lead(withCors, 'OPTIONS /a', ask)).toBe('api')
    expect(lead(withCors, 'OPTIONS /a', ['access-control-request-method', 'PUT'])).toBe('405 POST')
    expect(lead(tableOf(match), 'OPTIONS /a', ask)).toBe('405 POST')
  })
})

describe('hosts', () => {
  const table = tableOf({
    exact: { hosts: ['a.example.com'], path: '/' },
    wild: { hosts: ['*.example.com'], path: '/' },
    wildApp: { hosts: ['*.example.com'], path: '/app' },
    any: { path: '/any' },
  })

  it('exact, then wildcard, then any; without port, case and trailing dot', () => {
    expect(lead(table, 'a.example.com/app')).toBe('exact')
    expect(lead(table, 'A.Example.COM.:8080/app')).toBe('exact')
    expect(lead(table, 'b.example.com/app')).toBe('wildApp')
    expect(lead(table, 'b.example.com/x')).toBe('wild')
    expect(lead(table, 'c.b.example.com/x')).toBe('none')
    expect(lead(table, 'example.com/any')).toBe('any')
  })

  it('may be addresses, too', () => {
    const addresses = tableOf({ six: { hosts: ['[::1]'], path: '/' }, four: { hosts: ['127.0.0.1'], path: '/' } })
    expect(lead(addresses, '[::1]:8080/')).toBe('six')
    expect(lead(addresses, '127.0.0.1:8080/')).toBe('four')
  })

  it.each(['10.7', '0xa.0.0.7', '1.2.3.999', '[fd00:0::7]', '[:::::]', '*.10'])(
    'but not %s, which no request has',
    host => {
      expect(() => tableOf({ address: { hosts: [host], path: '/' } })).toThrow('must be an address as URLs spell it')
    },
  )
})

describe('headers', () => {
  it('the route with more conditions wins; if they do not hold, the next one, then a shorter path', () => {
    const table = tableOf({
      plain: { path: '/a' },
      canary: { path: '/a', headers: { 'X-Canary': '1' } },
      both: { path: '/a', headers: { 'x-canary': '1', 'x-team': '*' } },
      only: { path: '/a/b', headers: { 'x-canary': '2' } },
    })
    expect(lead(table, '/a')).toBe('plain')
    expect(lead(table, '/a', ['x-canary', '1'])).toBe('canary')
    expect(lead(table, '/a', ['x-team', 'z', 'x-canary', '1'])).toBe('both')
    expect(lead(table, '/a/b', ['x-canary', '0'])).toBe('plain')
    expect(lead(table, '/a/b', ['x-canary', '2'])).toBe('only')
  })
})
