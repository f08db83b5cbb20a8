import { describe, expect, it } from 'vitest'
import { compileTable } from '../../router/compile.ts'
import { capturesOf, matchRequest } from '../../router/match.ts'
import { DECODE_NAMES, decode, EMPTY_NAMES, SERVERS } from './servers.ts'

/** With the pattern of each route's path, longest first. NAME stands for what the server takes for a name. */
const TABLES = [
  {
    routes: [
      { name: 'tenant-admin', match: { path: '/{tenant}/admin' }, answer: { status: 403 } },
      { name: 'admin', match: { path: '/admin' }, answer: { status: 403 } },
      { name: 'rest', match: {}, answer: { status: 200 } },
    ],
    patterns: { 'tenant-admin': '/NAME/admin(?:/|$)', admin: '/admin(?:/|$)', rest: '' },
  },
  {
    routes: [
      { name: 'open', match: { path: '/{x}/admin' }, answer: { status: 200 } },
      { name: 'strict', match: { path: '/{x}' }, answer: { status: 403 } },
      { name: 'rest', match: {}, answer: { status: 200 } },
    ],
    patterns: { open: '/NAME/admin(?:/|$)', strict: '/NAME', rest: '' },
  },
  {
    routes: [
      {
        name: 'names',
        match: { path: '/{page}/{tenant}' },
        allow: { tenant: ['a', 'admin'] },
        answer: { status: 200 },
      },
      { name: 'rest', match: {}, answer: { status: 200 } },
    ],
    patterns: { names: '/NAME/(NAME)', rest: '' },
  },
]

const TOKENS = [
  '/',
  '%2f',
  ';',
  '%3b',
  '.',
  '%2e',
  '..%2e.',
  'a',
  'admin',
  '%61dmin',
  '%25',
  '%3f',
  '%0a',
  '%ff',
  '%6=',
  '(S(x))',
]

/** Nothing is no name at the root, which each of the tables has. */
function nameOf(server: string): string {
  if (!EMPTY_NAMES.has(server)) return '[^/]+'
  return server.startsWith('fastify') ? '(?:[^/]+|(?=/)|(?<!^/)$)' : '(?:[^/]+|(?=/))'
}

function patternsOf(patterns: object, server: string): [string, RegExp][] {
  return Object.entries(patterns).map(([name, text]) => [
    name,
    new RegExp(`^${text.replaceAll('NAME', nameOf(server))}`),
  ])
}

function* paths(tokens: number, path = '/'): Generator<string> {
  yield path
  if (tokens > 0) for (const token of TOKENS) yield* paths(tokens - 1, path + token)
}

describe('R3 whatever path is accepted', () => {
  it.each(TABLES)(
    'no server reads it as one of another route, or with another name: table %#',
    ({ routes, patterns }) => {
      const table = compileTable({ routes })
      const expected = Object.fromEntries(Object.keys(SERVERS).map(server => [server, patternsOf(patterns, server)]))
      const wrong: string[] = []
      let accepted = 0
      for (const path of paths(4)) {
        const match = matchRequest(table, { method: 'GET', authority: 'any.test', path, headers: [] })
        if (match.kind !== 'route') continue
        accepted++
        const ours = [
          match.route.route.name,
          match.route.allowed.size === 0 ? undefined : capturesOf(match.route, path),
        ]
        for (const [server, read] of Object.entries(SERVERS)) {
          const segments = read(path)
          if (segments === undefined) continue
          // A slash within a segment is none between segments.
          const text = `/${segments.map(segment => segment.replaceAll('/', '|')).join('/')}`
          const [name, pattern] = expected[server]!.find(([, each]) => each.test(text))!
          const captured = pattern.exec(text)?.[1]?.replaceAll('|', '/')
          const tenant = captured !== undefined && DECODE_NAMES.has(server) ? decode(captured) : captured
          const named = ours[1] === undefined || tenant === (ours[1] as { tenant: string }).tenant
          if (name !== ours[0] || !named) wrong.push(`${path} at ${server}: ${name}, here ${ours[0]}`)
        }
      }
      expect(wrong).toEqual([])
      expect(accepted).toBeGreaterThan(500)
    },
  )
})
