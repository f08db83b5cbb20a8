import { expect, it } from 'vitest'
import { createRouter, serveRouter } from '../../router/index.ts'
import { recordingLogger } from './support.ts'

const router = createRouter({
  routes: {
    routes: [
      { name: 'api', match: { path: '/api', methods: ['POST'] }, target: 'https://api.internal', host: 'target' },
      {
        name: 'old',
        match: { path: '/old/x' },
        target: 'http://old',
        rewrite: { replacePrefix: { from: '/old', to: '/new' } },
      },
      { name: 'inner', match: { path: '/inner' }, target: 'http://[::1]:81', allow: { callers: ['10.0.0.0/8'] } },
      { name: 'hosted', match: { hosts: ['a.example.com'], path: '/' }, target: 'h2c://grpc:50051' },
      { name: 'strip', match: { path: '/strip' }, target: 'http://s', rewrite: { stripPrefix: '/strip' } },
    ],
    resolve: { 'api.internal:443': '127.0.0.1:9443' },
  },
})

it('reports route, target, dialled address, path and host', () => {
  expect(router.match({ url: 'https://outer/api/x?y', method: 'POST' })).toEqual({
    outcome: 'forward',
    route: 'api',
    captures: {},
    path: '/api/x?y',
    target: 'https://api.internal:443',
    dial: '127.0.0.1:9443',
    host: 'api.internal',
    code: undefined,
    status: undefined,
    explanation: 'route "api" sends it to https://api.internal:443 as POST /api/x?y',
  })
  expect(router.match({ url: 'http://h:1/old/x/y' })).toMatchObject({ path: '/new/x/y', host: 'h:1' })
  expect(router.match({ url: '/inner' })).toMatchObject({ target: 'http://[::1]:81', dial: undefined })
  expect(router.match({ url: 'http://a.example.com/any' })).toMatchObject({
    route: 'hosted',
    target: 'h2c://grpc:50051',
  })
  expect(router.match({ url: '/strip?q' })).toMatchObject({ path: '/?q' })
  expect(router.match({ url: '/strip/;id=1?next=/a' })).toMatchObject({ path: '/;id=1?next=/a' })
})

it('says why there is none', () => {
  const why = (url: string, more = {}) => {
    const { outcome, status, explanation } = router.match({ url, ...more })
    expect(outcome).toBe('refuse')
    return `${status} ${explanation}`
  }
  expect(why('http://h/api')).toBe('405 route "api" has this path, but allows only POST, not GET')
  expect(why('http://h/apix')).toBe("404 no route for h/apix; the table's paths are /api, /old/x, /inner, /, /strip")
  expect(why('http://h/inner', { caller: '192.0.2.1' })).toBe(
    '403 route "inner" matches, but its allow.callers does not',
  )
  expect(why('http://h/inner/../api')).toBe(
    '400 refused (400): the path has a dot segment, a backslash, a control character or the like',
  )
  for (const path of ['/inner?x#y', '/inner#y', '/inner?ä'])
    expect(why(`http://h${path}`)).toBe(
      '400 refused (400): a path or query has no `#`, white space or characters beyond ASCII',
    )
  for (const rest of [
    '//evil.example',
    '/%2fevil.example',
    '/;x/evil.example',
    '/%3b/evil.example',
    '/%252Fevil.example',
  ]) {
    expect(why(`http://h/strip${rest}`), rest).toBe(
      '400 route "strip" matches, but: the rewritten path could be read as one that begins with two slashes',
    )
  }
})

it('a condition on a field that is always removed is warned of, and never met', async () => {
  const { logger, lines } = recordingLogger()
  const matches = async (name: string) => {
    const routes = [
      { name: 'one', match: { path: '/', headers: { [name]: '1' } }, answer: { status: 299 } },
      { name: 'rest', match: { path: '/' }, answer: { status: 298 } },
    ]
    const service = await serveRouter({ port: 0, logger, trustedProxies: ['127.0.0.0/8'], routes: { routes } })
    const { status } = await fetch(`http://127.0.0.1:${service.address.port}/`, { headers: { [name]: '1' } })
    await service.close({ graceMs: 0 })
    const explained = createRouter({ routes: { routes } }).match({ url: '/', headers: { [name]: '1' } })
    return [explained.route, status]
  }
  for (const name of [
    'X-Original-Method',
    'x_rewrite_path',
    'X-Forwarded-Proto',
    'keep_alive',
    'Sec-WebSocket-Version',
  ]) {
    expect(await matches(name), name).toEqual(['rest', 298])
    const why = `no request matches, since "${name.toLowerCase()}" in match.headers is always removed before`
    expect(lines.splice(0).filter(line => line.startsWith('warn'))).toEqual([`warn route "one": ${why}`])
  }
  expect(await matches('X-SSL-Client-Verify')).toEqual(['one', 299])
  expect(lines.filter(line => line.startsWith('warn'))).toEqual([])
})
