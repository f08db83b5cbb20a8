import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { RouteTableError } from '../../router/table.ts'
import { parseRoutes, readRoutes } from '../../router/table-file.ts'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-routes-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** The message for a file; empty if it is valid. */
function complaint(text: string): string {
  try {
    parseRoutes(text, 'routes.yaml')
    return ''
  } catch (error) {
    expect(error).toBeInstanceOf(RouteTableError)
    return (error as Error).message
  }
}

/** A route with other lines in it, starting at line 2. */
const route = (...lines: string[]) => `routes:\n  - name: a\n${lines.map(line => `    ${line}\n`).join('')}`

const EXAMPLE = `
routes:
  - name: app-proxy
    match: { path: /app-proxy }            # whole segments: /app-proxy and /app-proxy/..., not /app-proxyx
    target: http://cap-app-proxy:3017
    cors: { origins: [https://ui.example.com], methods: [GET, HEAD, PUT, PATCH, POST, DELETE], headers: [content-type, x-access-token], credentials: true }
    timeouts: { connectMs: 5000, headMs: 60000 }
  - name: workflows
    match: { path: /workflows/ }
    target: http://argo-server:2746
    rewrite: { stripPrefix: /workflows }
  - name: webhooks
    match: { path: "/webhooks/{namespace}/{eventSource}", methods: [POST, GET] }
    target: "http://{eventSource}-eventsource-svc.{namespace}.svc.cluster.local:80"
    allow: { namespace: [demo], callers: [0.0.0.0/0, "::/0"] }
    limits: { bodyBytes: 26214400 }
resolve: { "push-eventsource-svc.demo.svc.cluster.local:80": "127.0.0.1:12000" }
`

describe('a routes file', () => {
  it('from the documentation is accepted', () => {
    const table = parseRoutes(EXAMPLE, 'routes.yaml')
    expect(table.routes.map(({ name }) => name)).toEqual(['app-proxy', 'workflows', 'webhooks'])
    expect(table.resolve).toEqual({ 'push-eventsource-svc.demo.svc.cluster.local:80': '127.0.0.1:12000' })
  })

  it('may be JSON, or have no routes', () => {
    expect(parseRoutes('{"routes": []}', 'routes.json')).toEqual({ routes: [] })
  })

  it.each([
    ['a: }\nplanted: b', 'routes.yaml:1:4: Unexpected flow-map-end token in YAML stream'],
    ['a: |planted', 'routes.yaml:1:5: Block scalar header includes extra characters'],
    ['a: [*planted]', 'routes.yaml:1:5: Unresolved alias (the anchor must be set before the alias)'],
  ])('that is no YAML is complained about without its text, which may hold a secret: %s', (text, message) => {
    expect(complaint(text)).toContain(message)
    expect(complaint(text)).not.toContain('planted')
  })

  it('that cannot be read is named', async () => {
    const file = join(folder, 'missing.yaml')
    await expect(readRoutes(file)).rejects.toThrow(`cannot read ${file} (ENOENT)`)
  })
})

describe('complaints name line, column and the nearest known key', () => {
  const target = 'target: http://b:1'
  const match = 'match: { path: /x }'
  it.each([
    [
      'a typo',
      route(match, target, 'rewite: { stripPrefix: /x }'),
      '5:5: unknown key "rewite"; did you mean "rewrite"?',
    ],
    ['a typo below', route('match: { pth: /x }', target), '3:14: unknown key "pth"; did you mean "path"?'],
    ['a typo at the top level', 'rotes: []', '1:1: unknown key "rotes"; did you mean "routes"?'],
    ['a wrong type', route(match, target, 'timeouts: { headMs: soon }'), '5:17: timeouts.headMs: must be a number'],
    [
      'a number that is too small',
      route(match, target, 'timeouts: { headMs: 0 }'),
      '5:17: timeouts.headMs: must be at least 1',
    ],
    ['a wrong word', route(match, target, 'host: kept'), '5:5: host: must be one of keep, target'],
    ['no routes', '{}', '1:1: routes: is missing'],
    ['no match', route(target), '2:5: match: is missing'],
    ['no target', route(match), '2:5: route "a" needs either a target or an answer'],
    [
      'a target with a path',
      route(match, 'target: http://b:1/x'),
      '4:5: target: must be only host and port; a path is set with rewrite',
    ],
    [
      'a target with a user',
      route(match, 'target: http://u:p@b'),
      '4:5: target: must not have a user name or password',
    ],
    [
      'a target with another scheme',
      route(match, 'target: ftp://b'),
      '4:5: target: must begin with http://, https:// or h2c://',
    ],
    [
      'a target in an unusual notation',
      route(match, 'target: http://0x7f.1'),
      '4:5: target: the host is not an IP address in its usual form',
    ],
    [
      'a number instead of a host',
      route(match, 'target: http://2130706433'),
      '4:5: target: the host is not an IP address in its usual form',
    ],
    ['an unknown capture', route(match, 'target: "http://{x}"'), '4:5: target: {x} is not a capture of match.path'],
    [
      'an empty allow-list',
      route(match, target, 'allow: { ns: [a] }'),
      '5:14: allow.ns: {ns} is not a capture of match.path',
    ],
    [
      'no network',
      route(match, target, 'allow: { callers: [10.0.0.0/33] }'),
      '5:14: allow.callers: not a network: "10.0.0.0/33"',
    ],
    [
      'a strip that does not match the path',
      route(match, target, 'rewrite: { stripPrefix: /xy }'),
      '5:16: rewrite.stripPrefix: must be a prefix of match.path, in whole segments',
    ],
    [
      'a hop-by-hop header',
      route(match, target, 'headers: { set: { Host: a } }'),
      '5:23: headers.set.Host: "host" belongs to the connection and cannot be set or removed',
    ],
    [
      'a forged caller',
      route(match, target, 'headers: { set: { X-Forwarded-For: a } }'),
      '5:23: headers.set.X-Forwarded-For: "x-forwarded-for" identifies the caller and cannot be set or removed',
    ],
    [
      'tls without https',
      route(match, target, 'tls: { insecure: true }'),
      '5:5: tls: only a target that begins with https:// has TLS',
    ],
    [
      'a missing CA file',
      route(match, 'target: https://b', 'tls: { ca: /nowhere/ca.pem }'),
      '5:12: tls.ca: cannot read /nowhere/ca.pem (ENOENT)',
    ],
    [
      'credentials for any origin',
      route(match, target, 'cors: { origins: ["*"], credentials: true }'),
      '5:13: cors.origins: with credentials, the origins must be listed one by one',
    ],
    [
      'half a capture',
      route('match: { path: "/x-{n}" }', target),
      '3:14: match.path: a capture is a whole segment, written {name}',
    ],
    [
      'an origin with a path',
      route(match, target, 'cors: { origins: [https://ui/] }'),
      '5:23: cors.origins[0]: must be an origin such as https://ui.example.com, without a path',
    ],
  ])('%s', (_, text, message) => {
    expect(complaint(text)).toBe(`routes.yaml:${message}`)
  })

  it('two routes with the same conditions', () => {
    const text = `${route(match, target)}  - name: b\n    match: { path: /x, methods: [GET] }\n    ${target}\n`
    expect(complaint(text)).toBe('')
    expect(complaint(text.replace(', methods: [GET]', ''))).toBe(
      'routes.yaml:5:5: routes "a" and "b" match the same requests (/x)',
    )
    expect(complaint(text.replace('name: b', 'name: a'))).toBe('routes.yaml:5:5: two routes are called "a"')
  })

  it('even if they share only some of their hosts, or only the names of captures differ', () => {
    const two = (one: string, other: string) =>
      `routes:\n  - { name: a, match: ${one}, target: "http://b" }\n  - { name: b, match: ${other}, target: "http://b" }\n`
    const same = 'routes.yaml:3:5: routes "a" and "b" match the same requests (/x/{n})'
    expect(complaint(two('{ path: "/x/{m}" }', '{ path: "/x/{n}" }'))).toBe(same)
    const hosts = (list: string, name: string) => `{ hosts: [${list}], path: "/x/{${name}}" }`
    expect(complaint(two(hosts('a.b, c.d', 'm'), hosts('C.d', 'n')))).toBe(same)
    expect(complaint(two(hosts('a.b', 'm'), hosts('c.d', 'n')))).toBe('')
    expect(complaint(two(hosts('a.b', 'm'), '{ path: "/x/{n}" }'))).toBe('')
  })

  it('invalid YAML, and several problems, each on its own line', () => {
    expect(complaint('routes:\n  - name: a\n   match: {}\n')).toMatch(/^routes\.yaml:3:1: /)
    expect(complaint('a: 1\na: 2\n')).toBe('routes.yaml:2:1: Map keys must be unique')
    const text = route('mach: { path: /x }', match, target, 'hots: keep')
    expect(complaint(text).split('\n')).toEqual([
      'routes.yaml:3:5: unknown key "mach"; did you mean "match"?',
      'routes.yaml:6:5: unknown key "hots"; did you mean "host"?',
    ])
  })
})

describe('a CA file', () => {
  it('is found relative to the routes file, and must contain a certificate', () => {
    writeFileSync(join(folder, 'ca.pem'), 'nothing')
    const file = join(folder, 'routes.yaml')
    const text = route('match: { path: /x }', 'target: https://b', 'tls: { ca: ca.pem }')
    expect(() => parseRoutes(text, file)).toThrow(
      `${file}:5:12: tls.ca: ${join(folder, 'ca.pem')} has no PEM certificate`,
    )
  })
})

it('a file over 4 MiB is refused before it is read as YAML', () => {
  const text = `routes: []\n#${' '.repeat(4 * 1024 * 1024)}`
  expect(() => parseRoutes(text, 'routes.yaml')).toThrow('routes.yaml is too large')
})
