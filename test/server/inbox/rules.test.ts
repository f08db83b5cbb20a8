/**
 * A server finds the same rule as the client's router finds the route: otherwise webhooks would be kept, or refused, on
 * another route's terms.
 */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { compileTable } from '../../../router/compile.ts'
import { matchRequest } from '../../../router/match.ts'
import type { Route } from '../../../router/table.ts'
import { RouteTableError } from '../../../router/table.ts'
import { Rules } from '../../../server/inbox/rules.ts'
import { EXCHANGE } from '../../support/ends.ts'

const HOSTS = [undefined, ['x.test'], ['*.test'], ['X.test', 'y.test']]
const SEGMENTS = ['a', 'b', '{}']
const FIELDS = [undefined, undefined, { 'X-A': '*' }, { 'x-a': '1' }, { 'x-a': '2', 'x-b': '*' }]
const METHODS = [['POST'], ['PUT'], ['POST', 'PUT']]

const pattern = fc
  .tuple(fc.array(fc.constantFrom(...SEGMENTS), { maxLength: 3 }), fc.boolean())
  .map(([segments, slash]) => {
    const path = segments.map((segment, i) => `/${segment === '{}' ? `{n${i}}` : segment}`).join('')
    return path === '' ? '/' : path + (slash ? '/' : '')
  })
const route = fc.record({
  hosts: fc.constantFrom(...HOSTS),
  path: pattern,
  headers: fc.constantFrom(...FIELDS),
  methods: fc.constantFrom(undefined, ['GET'], ...METHODS),
  inbox: fc.boolean(),
  guarded: fc.boolean(),
})
/** Many have a twin for other methods, and a shorter one. */
const tables = fc.array(fc.tuple(route, fc.option(route), fc.option(route)), { minLength: 1, maxLength: 3 }).map(all =>
  all.flatMap(([one, twin, short]) => {
    const { hosts, path, headers } = one
    const parent = path.slice(0, path.replace(/\/$/, '').lastIndexOf('/')) || '/'
    return [
      one,
      ...(twin ? [{ ...twin, hosts, path, headers }] : []),
      ...(short ? [{ ...short, hosts, path: parent }] : []),
    ]
  }),
)
const request = fc.record({
  authority: fc.constantFrom('x.test', 'Y.test:8080', 'z.test.', 'x.z.test', 'test', 'other'),
  path: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 4 }).map(all => `/${all.join('/')}`),
  method: fc.constantFrom('POST', 'PUT', 'PATCH'),
  slash: fc.boolean(),
  headers: fc.constantFrom<string[][]>([], ['x-a', '1'], ['x-a', '1', 'x-a', '2', 'x-b', '3'], ['x-b', '1']),
})

it('R9 a server keeps what the router would send to a route with an inbox, and nothing else', () => {
  let compared = 0
  fc.assert(
    fc.property(tables, fc.array(request, { maxLength: 20 }), (all, asked) => {
      const routes = all.map(({ hosts, path, methods, headers, inbox, guarded }, i): Route => {
        const keeps = inbox && methods !== undefined && !methods.includes('GET')
        const match = {
          path,
          ...(hosts && { hosts }),
          ...(methods && { methods }),
          ...(!keeps && headers && { headers }),
        }
        const allow = { callers: ['127.0.0.1'] }
        const target = 'http://127.0.0.1:1'
        return { name: `r${i}`, match, target, ...(guarded && { allow }), ...(keeps && { inbox: {} }) }
      })
      const table = compiled(routes)
      fc.pre(table !== undefined)
      const rules = new Rules(table!.inbox, 1e9)
      for (const { slash, ...one } of asked) {
        const whole = { ...EXCHANGE, ...one, path: one.path + (slash ? '/' : '') }
        const match = matchRequest(table!, whole)
        const found = match.kind === 'route' && match.route.route.inbox !== undefined ? match.route.name : undefined
        expect(rules.find(whole)?.route, JSON.stringify({ routes, whole })).toBe(found)
        if (found !== undefined) compared++
      }
    }),
    { numRuns: 2000 },
  )
  expect(compared).toBeGreaterThan(200)
})

it('R9 a path whose last slash the router refuses is not stored', () => {
  const route = (name: string, path: string, more: Partial<Route> = { inbox: {} }): Route => ({
    ...{ name, match: { path, methods: ['POST'] }, target: 'http://127.0.0.1:1', ...more },
  })
  const find = (path: string, ...routes: Route[]) =>
    new Rules(compileTable({ routes }).inbox, 1e9).find({ ...EXCHANGE, method: 'POST', path })?.route
  const allow = { sender: ['github'] }
  const hooks = route('hooks', '/hooks')
  const guarded = [hooks, route('sender', '/hooks/{sender}', { allow, inbox: {} })]
  expect(find('/hooks/', hooks, route('sender', '/hooks/{sender}'))).toBe('hooks')
  expect(find('/hooks', ...guarded)).toBe('hooks')
  expect(find('/hooks/', ...guarded)).toBeUndefined()
  expect(find('/hooks/?x=/', ...guarded)).toBeUndefined()
  expect(find('/hooks/', hooks, route('sender', '/hooks/{sender}', { allow }))).toBeUndefined()
  expect(find('/hooks/', ...guarded, route('slash', '/hooks/'))).toBe('slash')
  expect(find('/hooks/github', ...guarded)).toBe('sender')
  expect(find('/hooks/github/', ...guarded)).toBe('sender')
  const forMethod = (method: string, allow?: Route['allow']) =>
    route(method, '/hooks/{sender}', { match: { path: '/hooks/{sender}', methods: [method] }, ...(allow && { allow }) })
  for (const order of [1, -1]) {
    expect(find('/hooks/', hooks, ...[forMethod('GET', allow), forMethod('POST')].toSorted(() => order))).toBe('hooks')
    expect(
      find('/hooks/', hooks, ...[forMethod('GET'), forMethod('POST', allow)].toSorted(() => order)),
    ).toBeUndefined()
  }
})

/** Undefined if two of them match the same requests. */
function compiled(routes: Route[]): ReturnType<typeof compileTable> | undefined {
  try {
    return compileTable({ routes })
  } catch (error) {
    if (error instanceof RouteTableError && error.message.includes('match the same requests')) return undefined
    throw error
  }
}

it('a route that does not fit into a hello, and that precedes one with an inbox, is refused with its place', () => {
  const hosts = Array.from({ length: 17 }, (_, i) => `h${i}.test`)
  const target = 'http://127.0.0.1:1'
  const kept: Route = { name: 'kept', match: { path: '/hooks', methods: ['POST'] }, target, inbox: {} }
  expect(() => compileTable({ routes: [kept, { name: 'many', match: { hosts }, target }] })).toThrow(
    'routes[1].match.hosts: with an inbox, at most 16',
  )
})
