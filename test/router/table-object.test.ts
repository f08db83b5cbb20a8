/** A table given as an object follows the rules of a file: each key, each type of value, each place. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { createRouter, type RouteTable } from '../../router/index.ts'
import { parseRoutes } from '../../router/table-file.ts'
import { routeTableShape, type Shape } from '../../router/table-schema.ts'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-table-'))
afterAll(() => rmSync(folder, { recursive: true }))
const SECRET = join(folder, 'secret')
writeFileSync(SECRET, 's3cret\n')
const signature = { scheme: 'hmac', header: 'x-sig', prefix: 'v=', encoding: 'hex', hash: 'sha256' }
const hmac = { ...signature, secrets: [{ file: SECRET }] }
const hook = (name: string, more: object) => ({
  name,
  match: { path: `/${name}`, methods: ['POST'] },
  target: 'http://b.test',
  ...structuredClone(more),
})

/** A valid table with something at each place where a key may be. */
const full = () => ({
  routes: [
    {
      name: 'a',
      match: { hosts: ['a.test'], path: '/x/{n}', methods: ['GET'], headers: { one: '1' } },
      target: 'https://b.test',
      rewrite: { replacePrefix: { from: '/x', to: '/y' } },
      host: 'keep',
      headers: { set: { two: '2' }, remove: ['three'] },
      responseHeaders: { set: { two: '2' }, remove: ['three'] },
      timeouts: { connectMs: 1, headMs: 1 },
      limits: { bodyBytes: 1 },
      tls: { serverName: 'c.test', insecure: true, http2: true },
      trustErrors: true,
      retries: { attempts: 1, idempotencyKey: true },
      cors: {
        origins: ['https://u.test'],
        methods: ['GET'],
        headers: ['x'],
        credentials: true,
        exposeHeaders: ['x'],
        maxAge: 1,
      },
      allow: { n: ['1'], callers: ['::/0'] },
    },
    hook('c', { verify: { ...hmac, at: 'router' } }),
    hook('d', { verify: { scheme: 'slack', secrets: [{ file: SECRET }], tolerance: '1m' } }),
    hook('e', {
      inbox: {
        mode: 'always',
        answerWithin: '1s',
        maxAge: '1h',
        lane: 'path',
        verify: { ...hmac, at: 'edge' },
        resign: { ...signature, secret: { file: SECRET } },
      },
    }),
    hook('f', { inbox: { verify: { scheme: 'slack', secrets: [{ file: SECRET }], tolerance: '1m' } } }),
    { name: 'b', match: { path: '/b' }, answer: { status: 200, body: 'b', contentType: 'text/plain' } },
  ],
  resolve: { 'b.test:443': '127.0.0.1:1' },
})

type Path = (string | number)[]
type Tree = Record<string | number, unknown>

function at(path: Path): { table: Tree; parent: Tree; key: string | number } {
  const table: Tree = full()
  let parent = table
  for (const part of path.slice(0, -1)) parent = parent[part] as Tree
  return { table, parent, key: path.at(-1)! }
}

/** Each place below `value`, with its path. */
function* places(value: unknown, path: Path = []): Generator<{ path: Path; value: unknown }> {
  if (path.length > 0) yield { path, value }
  if (typeof value !== 'object' || value === null) return
  for (const [key, inner] of Object.entries(value)) {
    yield* places(inner, [...path, Array.isArray(value) ? Number(key) : key])
  }
}

function written(path: Path): string {
  return path
    .reduce<string>((text, part) => `${text}${typeof part === 'number' ? `[${part}]` : `.${part}`}`, '')
    .slice(1)
}

function complaint(table: unknown): string {
  try {
    void createRouter({ routes: table as RouteTable }).close()
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

const all = [...places(full())]
const objects = all.filter(({ value }) => typeof value === 'object' && !Array.isArray(value)).map(({ path }) => path)
const maps = ['match.headers', 'headers.set', 'responseHeaders.set', 'allow', 'resolve']
const isMap = (path: Path) => maps.some(name => written(path).endsWith(name) && !written(path).endsWith(`${name}s`))

it('the valid one is accepted, and has every key that the schema knows', () => {
  expect(complaint(full())).toBe('')
  const names = new Set(all.map(({ path }) => written(path).replace(/^routes\[\d\]\./, '')))
  const walk = (shape: Shape, path: string): void => {
    for (const [key, inner] of Object.entries(shape.keys ?? {})) {
      const below = path === '' ? key : `${path}.${key}`
      if (!['rewrite.stripPrefix', 'tls.ca'].includes(below)) expect(names).toContain(below)
      walk(inner, below)
    }
  }
  walk(routeTableShape.keys!.routes!.items!, '')
  expect(all.length).toBeGreaterThan(60)
})

describe('a value of the wrong type is refused at its place', () => {
  it.each(all.map(({ path, value }) => [written(path), path, value] as const))('%s', (name, path, value) => {
    const wrong: unknown[] = [null, () => {}, Symbol('x'), 1n]
    if (typeof value === 'number') wrong.push(Number.NaN, -5, 0.5, Number.POSITIVE_INFINITY, String(value))
    else if (typeof value === 'boolean') wrong.push(String(value), 0, 'false')
    else if (typeof value === 'string') wrong.push(1, true, ['x'], { x: 1 })
    else wrong.push('x', 1, true, Array.isArray(value) ? {} : ['x'])
    for (const bad of wrong) {
      const { table, parent, key } = at(path)
      parent[key] = bad
      expect(complaint(table), String(bad)).toContain(name)
    }
  })
})

describe('an unknown key is refused by name', () => {
  it.each([[], ...objects].filter(path => !isMap(path)).map(path => [written(path) || 'the table', path] as const))(
    '%s',
    (_, path) => {
      for (const unknown of ['alow', '__proto__', 'constructor', 'toString']) {
        const { table, parent } = at([...path, unknown])
        Object.defineProperty(parent, unknown, { value: 'x', enumerable: true })
        expect(complaint(table)).toContain(`unknown key "${unknown}"`)
      }
    },
  )
})

it('for a mistyped key only the mistake is reported', () => {
  const { table, parent } = at(['routes', 0, 'match'])
  parent.mach = parent.match
  delete parent.match
  expect(complaint(table)).toBe('routes[0].mach: unknown key "mach"; did you mean "match"?')
})

describe('a key __proto__ in a file is a key like any other', () => {
  const route = (rest: string) => `routes: [{ name: a, match: { path: /x }, target: "http://b", ${rest} }]`
  it.each([
    ['of the table', '{ routes: [], __proto__: {} }', 'unknown key "__proto__"'],
    ['of a route', route('__proto__: {}'), 'unknown key "__proto__"'],
    ['of allow', route('allow: { __proto__: [] }'), 'allow.__proto__: {__proto__} is not a capture'],
    ['of resolve', '{ routes: [], resolve: { __proto__: x } }', 'resolve.__proto__: the key must be name:port'],
    [
      'of fields, with a wrong value',
      route('headers: { set: { __proto__: [] } }'),
      'headers.set.__proto__: must be a string',
    ],
  ])('%s', (_, text, message) => {
    expect(() => parseRoutes(text, 'routes.yaml')).toThrow(message)
  })

  it('in a condition: the condition applies', async () => {
    const text = 'routes: [{ name: a, match: { headers: { __proto__: "1" } }, target: "http://b" }]'
    await using router = createRouter({ routes: parseRoutes(text, 'routes.yaml') })
    expect(router.match({ url: '/' }).outcome).toBe('refuse')
    expect(router.match({ url: '/', headers: JSON.parse('{ "__proto__": "1" }') }).outcome).toBe('forward')
  })
})

it('compiling a large table whose routes differ only in their methods takes work in proportion to its size', () => {
  const routes = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ name: `r${i}`, match: { methods: [`M${i}`] }, target: 'http://b' }))
  const work = (count: number): number => {
    const table = { routes: routes(count) }
    const { sort } = Array.prototype
    const { has } = Set.prototype
    let steps = 0
    // oxlint-disable-next-line no-extend-native -- counted for the length of one call
    Array.prototype.sort = function (this: unknown[], ...order) {
      steps += this.length
      return sort.apply(this, order)
    }
    Set.prototype.has = function (value) {
      steps++
      return has.call(this, value)
    }
    try {
      void createRouter({ routes: table }).close()
    } finally {
      Array.prototype.sort = sort
      Set.prototype.has = has
    }
    return steps
  }
  expect(work(1_000)).toBeLessThan(12 * work(100))
})

describe('a pattern, where it would stand for itself and protect nothing,', () => {
  const tableOf = (more: object) => ({ routes: [{ name: 'a', match: {}, target: 'http://b.test', ...more }] })

  it.each<[string, object, string]>([
    ...['/admin/*', '/admin/**', '/*/admin', '/adm*', '/:tenant/admin', '/users/<id>'].map(
      (path): [string, object, string] => [path, { match: { path } }, 'match.path: has no patterns'],
    ),
    ['headers.remove', { headers: { remove: ['remote-*'] } }, 'headers.remove[0]: has a "*"'],
    ['headers.set', { headers: { set: { 'x-*': '' } } }, 'headers.set.x-*: has a "*"'],
    ['responseHeaders.remove', { responseHeaders: { remove: ['x-*'] } }, 'responseHeaders.remove[0]: has a "*"'],
    ['match.headers', { match: { headers: { 'x-*': '1' } } }, 'match.headers.x-*: has a "*"'],
    ['allow', { match: { path: '/{n}' }, allow: { n: ['team-*'] } }, 'allow.n: has a "*"'],
    ['allow that is empty', { allow: {} }, 'allow: is empty: it would allow all'],
    ['allow.callers', { allow: { callers: ['10.*'] } }, 'allow.callers: has a "*"'],
    ['match.hosts', { match: { hosts: ['a.*'] } }, 'match.hosts[0]'],
    ['match.methods', { match: { methods: ['*'] } }, 'match.methods[0]'],
    ['cors.origins', { cors: { origins: ['https://*.a.test'] } }, 'cors.origins[0]'],
  ])('is refused: %s', (_, more, message) => {
    expect(() => createRouter({ routes: tableOf(more) as RouteTable })).toThrow(message)
  })

  it('has a literal meaning where it is escaped, and its own where it has one', () => {
    const paths = ['/a%2A', '/%3Aa', '/%3ca', '/a:b', '/a<b', '/{n}']
    const lists = { hosts: ['*.a.test'], headers: { 'x-a': '*' } }
    for (const path of paths) createRouter({ routes: tableOf({ match: { path, ...lists } }) as RouteTable })
    createRouter({ routes: tableOf({ cors: { origins: ['*'], headers: ['*'] } }) as RouteTable })
  })
})
