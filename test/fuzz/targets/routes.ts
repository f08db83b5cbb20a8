import { compileTable } from '../../../router/compile.ts'
import type { CompiledRoute, CompiledTable } from '../../../router/compiled.ts'
import { capturesOf, matchRequest } from '../../../router/match.ts'
import { isPlainPath, pathEnd, readPath } from '../../../router/path.ts'
import { gitopsRuntime } from '../../../router/preset.ts'
import { rewritePath } from '../../../router/rewrite.ts'
import type { RouteTable } from '../../../router/table.ts'
import { fillTarget } from '../../../router/target.ts'
import { SERVERS } from '../../router/servers.ts'
import { holds } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const RICH: RouteTable = {
  routes: [
    { name: 'root', match: {}, target: 'http://root:80' },
    { name: 'a', match: { path: '/a' }, target: 'http://a:80' },
    { name: 'ab', match: { path: '/a/b', methods: ['GET'] }, target: 'http://ab:80' },
    { name: 'slash', match: { path: '/a/b/' }, target: 'http://slash:80', rewrite: { stripPrefix: '/a/b' } },
    { name: 'one', match: { path: '/a/{x}' }, target: 'http://{x}.svc:80' },
    { name: 'two', match: { path: '/{x}/{y}/c' }, target: 'http://{y}-{x}.svc:80', allow: { x: ['p', 'q'] } },
    { name: 'header', match: { path: '/a', headers: { 'x-a': 'v' } }, target: 'http://header:80' },
    { name: 'host', match: { path: '/a', hosts: ['h.test', '*.w.test'] }, target: 'http://host:80' },
    { name: 'private', match: { path: '/private/' }, answer: { status: 403 } },
    { name: 'admin', match: { path: '/admin' }, answer: { status: 403 } },
    {
      name: 'moved',
      match: { path: '/old/x' },
      target: 'http://moved:80',
      rewrite: { replacePrefix: { from: '/old', to: '/new' } },
    },
  ],
}

const TABLES: readonly CompiledTable[] = [
  compileTable(RICH),
  compileTable(gitopsRuntime({ namespaces: ['argo', 'demo'], corsOrigins: ['https://ui.test'] })),
]

const SEGMENTS = [
  ...[
    'a',
    'b',
    'c',
    'x',
    'p',
    'q',
    'admin',
    'private',
    'old',
    'app-proxy',
    'workflows',
    'webhooks',
    'argo',
    'demo',
    'readyz',
    'A',
    'localhost',
  ],
  ...[
    '',
    '.',
    '..',
    '%2e',
    '%2e%2e',
    '.%2e',
    '%252e',
    'a%2fb',
    '%2f',
    ';%2fx',
    ';',
    '%3bx',
    '%252f',
    '%5c',
    '\\',
    '%00',
    ';v=1',
    'a;b',
    '..;',
    '%c0%ae',
    '%c0%af',
  ],
  ...[
    'a%62',
    '%61',
    '%41',
    '%',
    '%2',
    '%zz',
    'a.b',
    '-a',
    'a_b',
    '1',
    '0x7f',
    'x'.repeat(64),
    '\xff',
    '+',
    '*',
    '~',
    '@',
    ':',
    '127',
    '%E2%80%AE',
  ],
]
const WORDS = [
  '/',
  '//',
  '%2f',
  '%2F',
  '%2e',
  '..',
  '/../',
  ';',
  '%3b',
  '/;%2f',
  '?',
  '#',
  '\\',
  '%5C',
  '%00',
  'admin',
  '/./',
  '%25',
]

function anyPath(random: Random): string {
  let path = ''
  for (let left = random.between(0, 5); left > 0; left--) path += `/${random.pick(SEGMENTS)}`
  if (random.oneIn(4)) path += '/'
  return `${path === '' ? '/' : path}${random.oneIn(5) ? random.pick(['?', '?a=/../admin', '?#']) : ''}`
}

/** The longest route whose segments begin the path, found without a trie and without methods, headers and hosts. */
function longest(table: CompiledTable, segments: readonly string[]): number {
  let most = -1
  for (const { segments: wanted, route, slash } of table.routes) {
    if (route.match.hosts !== undefined || route.match.headers !== undefined) continue
    if (wanted.length > segments.length || (slash && wanted.length === segments.length)) continue
    const fits = wanted.every((segment, i) => (segment === undefined ? segments[i] !== '' : segment === segments[i]))
    if (fits) most = Math.max(most, wanted.length)
  }
  return most
}

function checkRoute(table: CompiledTable, route: CompiledRoute, path: string): void {
  const forwarded = rewritePath(route, path)
  if (forwarded !== undefined) {
    holds(forwarded.startsWith('/'), 'what is forwarded is a path')
    if (route.cutSegments > 0) holds(!forwarded.startsWith('//'), 'what is forwarded names no other host')
    if (route.cutSegments === 0) holds(forwarded === path, 'without a rewrite, the bytes as they came')
  }
  if (route.template === undefined) return
  const captures = capturesOf(route, path)
  const target = fillTarget(route.template, captures, table.resolve, undefined)
  if (target === undefined) return
  const url = URL.parse(`http://${target.authority}/`)
  holds(url !== null && url.pathname === '/' && url.username === '', `the target is host and port: ${target.authority}`)
  holds(/^[a-z0-9.-]+$/.test(target.host) && url.hostname === target.host, `a name, read in one way: ${target.host}`)
  const fixed = route.template.parts.filter((_, i) => i % 2 === 0).join('')
  for (const value of Object.values(captures)) {
    if (target.host.length > fixed.length && target.host.includes(value))
      holds(!value.includes('.'), 'one label for one capture')
  }
}

/** One line with table, method, host and header, then the path. */
export const routes: FuzzTarget = {
  name: 'routes',

  generate(random) {
    const path = Buffer.from(anyPath(random), 'latin1')
    return Buffer.concat([random.bytes(2), random.oneIn(2) ? path : mutate(path, random, WORDS)])
  },

  execute(input) {
    const [first = 0, second = 0] = input
    const table = TABLES[first & 1]!
    const path = input.toString('latin1', 2)
    const match = matchRequest(table, {
      method: ['GET', 'POST', 'OPTIONS'][second & 1]!,
      authority: second & 2 ? 'demo.test' : 'any:80',
      path,
      headers: [],
    })
    if (!path.startsWith('/')) {
      holds(match.kind === 'ambiguous', 'no path, no route')
      return
    }
    const end = pathEnd(path)
    const plain = isPlainPath(path, end)
    const readings = plain ? undefined : readPath(path, end)
    const segments = plain ? path.slice(1, end).split('/') : readings?.[0]
    if (plain) holds(readPath(path, end) !== undefined, 'a plain path has readings')
    if (match.kind === 'ambiguous' || segments === undefined) return
    const found = match.kind === 'none' ? -1 : match.route.segments.length
    holds(found === longest(table, segments), `the longest route takes ${JSON.stringify(path)}`)
    // Any interpretation of the same bytes by an upstream leads to the same route.
    if (/[\x21-\x7e]+/.exec(path)?.[0] === path) {
      for (const [server, read] of Object.entries(SERVERS)) {
        const others = read(path.slice(0, end))
        const same = others === undefined || longest(table, others) === found
        holds(same, `${server} reads ${JSON.stringify(path)} as we do`)
      }
    }
    if (match.kind === 'route') checkRoute(table, match.route, path)
  },
}
