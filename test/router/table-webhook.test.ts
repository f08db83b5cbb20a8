/** `verify` and `inbox` in a routes file: what is accepted, what is refused and where, and what a client announces. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { METHODS } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { type InboxRule, parseControl } from '../../protocol/wire/control.ts'
import { createRouter, serveRouter } from '../../router/index.ts'
import { parseRoutes } from '../../router/table-file.ts'
import { recordingLogger } from './support.ts'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-hooks-'))
afterAll(() => rmSync(folder, { recursive: true }))
const file = join(folder, 'routes.yaml')
const WHPK = `whpk_${Buffer.alloc(32, 9).toString('base64')}`
for (const [name, text] of Object.entries({
  secret: 's3cret\n',
  standard: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  public: WHPK,
  empty: '\n',
})) {
  writeFileSync(join(folder, name), text)
}
mkdirSync(join(folder, 'directory'))

/** A route for webhooks with these lines, starting at line 5. */
const hook = (...lines: string[]) =>
  [
    'routes:',
    '  - name: hooks',
    '    match: { path: "/hooks/{name}", methods: [POST] }',
    '    target: http://127.0.0.1:1',
    ...lines.map(line => `    ${line}`),
  ].join('\n')

function complaint(text: string): string {
  try {
    parseRoutes(text, file)
    return ''
  } catch (error) {
    return (error as Error).message.replaceAll(`${folder}/`, '')
  }
}

function announced(text: string) {
  const { logger, lines } = recordingLogger()
  const router = createRouter({ routes: parseRoutes(text, file), logger })
  const rules = router.inbox()
  void router.close()
  return { rules: JSON.parse(JSON.stringify(rules)), lines }
}

const LATE =
  'signatures of slack cover the time; a target that checks it refuses late deliveries, unless inbox.resign signs them again'

describe('R9 bad input, with file and line, and nothing is signed again unless it is verified', () => {
  it.each([
    ['verify: { scheme: gihtub, secrets: [{ file: secret }] }', '5:15: verify.scheme: must be one of github, gitea'],
    ['verify: { scheme: github }', '5:5: verify.secrets: is missing'],
    ['verify: { scheme: github, secrets: [] }', '5:31: verify.secrets: must have at least 1'],
    ['verify: { scheme: github, secrets: [secret] }', '5:41: verify.secrets[0]: must be a map'],
    [
      'verify: { scheme: github, secrets: [{ file: nowhere }] }',
      '5:43: verify.secrets[0].file: cannot read nowhere (ENOENT)',
    ],
    [
      'verify: { scheme: github, secrets: [{ file: directory }] }',
      '5:43: verify.secrets[0].file: cannot read directory (EISDIR)',
    ],
    ['verify: { scheme: github, secrets: [{ file: empty }] }', '5:43: verify.secrets[0].file: empty is empty'],
    [
      'verify: { scheme: standard-webhooks, secrets: [{ file: empty }] }',
      '5:54: verify.secrets[0].file: empty is empty',
    ],
    ['verify: { scheme: github, secret: secret }', '5:31: unknown key "secret"; did you mean "secrets"?'],
    [
      'verify: { scheme: github, secrets: [{ file: secret }], at: edge }',
      '5:60: verify.at: only the webhooks of an inbox can be checked at the edge: see inbox.verify',
    ],
    [
      'verify: { scheme: github, secrets: [{ file: secret }], tolerance: 5m }',
      '5:60: verify.tolerance: the scheme github signs no timestamp',
    ],
    [
      'verify: { scheme: slack, secrets: [{ file: secret }], tolerance: 5 minutes }',
      '5:59: verify.tolerance: expected a duration, such as 90s, 30m or 1h',
    ],
    ['verify: { scheme: hmac, secrets: [{ file: secret }] }', '5:5: verify.header: is missing'],
    ...['X-Forwarded-Signature', 'Upgrade', 'Script_Name', 'Connection'].map((name): [string, string] => [
      `verify: { scheme: hmac, header: ${name}, secrets: [{ file: secret }] }`,
      '5:29: verify.header: is removed from every request, so no signature is ever in it',
    ]),
    [
      `verify: { scheme: github, secrets: [${Array(5).fill('{ file: secret }').join(', ')}] }`,
      '5:31: verify.secrets: at most 4',
    ],
    ['inbox: { mode: sometimes }', '5:14: inbox.mode: must be one of fallback, always'],
    ['inbox: { maxAge: 31d }', '5:14: inbox.maxAge: must be from 1s to 30d'],
    ['inbox: { maxAge: 999ms }', '5:14: inbox.maxAge: must be from 1s to 30d'],
    ['inbox: { maxAge: 72 }', '5:14: inbox.maxAge: expected a duration'],
    ['inbox: { answerWithin: 61s }', '5:14: inbox.answerWithin: must be from 1ms to 60s'],
    ['inbox: { answerWithin: 0s }', '5:14: inbox.answerWithin: must be from 1ms to 60s'],
    ['inbox: { lane: host }', '5:14: inbox.lane: must be one of path, route, none'],
    ['inbox: { verify: { scheme: paypal, secrets: [{ file: secret }] } }', '5:24: inbox.verify.scheme: must be one of'],
    [
      'inbox: { verify: { scheme: github, secrets: [{ file: nowhere }], at: edge } }',
      'inbox.verify.secrets[0].file: cannot read nowhere',
    ],
    ['inbox: { resign: { scheme: github, secret: { file: secret } } }', '5:14: inbox.resign: needs verify'],
    [
      'inbox: { verify: { scheme: github, secrets: [{ file: secret }] }, resign: { scheme: standard-webhooks, secret: { file: public } } }',
      'inbox.resign.secret.file: public is a public key, which signs nothing',
    ],
  ])('%s', (line, message) => {
    expect(complaint(hook(line))).toContain(message)
  })

  it.each([
    ['methods: [POST]', 'methods: [POST, GET]', 'not GET'],
    ['methods: [POST]', 'methods: [DELETE]', 'not DELETE'],
    [', methods: [POST]', '', 'match.methods must list methods that have a body (POST, PUT or PATCH)'],
    ['methods: [POST]', 'methods: [POST], headers: { x: y }', 'the server cannot check match.headers'],
    ['target: http://127.0.0.1:1', 'answer: { status: 200 }', 'only a route with a target can have an inbox'],
  ])('an inbox with %s as %s', (from, to, message) => {
    const text = complaint(hook('inbox: { mode: always }').replace(from, to))
    expect(text).toContain('routes.yaml:5:5: inbox: ')
    expect(text).toContain(message)
  })

  it('verify is given once, and needs a target', () => {
    const verify = 'verify: { scheme: github, secrets: [{ file: secret }] }'
    expect(complaint(hook(verify, `inbox: { ${verify} }`))).toBe(
      'routes.yaml:5:5: verify: inbox.verify is set, too; one of the two is enough',
    )
    expect(complaint(hook(verify).replace('target: http://127.0.0.1:1', 'answer: {}'))).toContain(
      'a fixed answer needs no signature',
    )
  })

  it('all problems are reported at once', () => {
    const lines = complaint(
      hook('inbox: { maxAge: 31d, answerWithin: 61s, verify: { scheme: github, secrets: [{ file: empty }] } }'),
    )
    expect(lines.split('\n')).toHaveLength(3)
  })

  it('more routes than fit into a hello', () => {
    const routes = (count: number, path = 'x') => ({
      routes: Array.from({ length: count }, (_, i) => ({
        name: `r${i}`,
        match: { path: `/${i}/${path}`, methods: ['POST'] },
        target: 'http://127.0.0.1:1',
        inbox: {},
      })),
    })
    expect(createRouter({ routes: routes(64) }).inbox()).toHaveLength(64)
    expect(() => createRouter({ routes: routes(65) })).toThrow(
      'routes[64]: the server accepts at most 64 routes for routes with an inbox',
    )
    expect(() => createRouter({ routes: routes(60, 'x'.repeat(200)) })).toThrow(
      'the server accepts at most 8192 bytes as JSON',
    )
    expect(() => createRouter({ routes: routes(1, 'x'.repeat(256)) })).toThrow('with an inbox, at most 256 characters')
  })
})

describe('unwise settings are reported', () => {
  it.each([
    ['inbox: { answerWithin: 10s }', ['inbox.answerWithin is 10s, and GitHub and GitLab give up after 10 s']],
    ['inbox: { answerWithin: 9s }', []],
    [
      'inbox: { answerWithin: 8s, verify: { scheme: slack, secrets: [{ file: secret }] } }',
      ['inbox.answerWithin is 8s, and Slack gives up after 3 s', LATE],
    ],
    ['inbox: { verify: { scheme: slack, secrets: [{ file: secret }] } }', [LATE]],
    [
      'inbox: { verify: { scheme: slack, secrets: [{ file: secret }] }, resign: { scheme: slack, secret: { file: secret } } }',
      [],
    ],
    ['verify: { scheme: slack, secrets: [{ file: secret }] }', []],
  ])('%s', (line, warnings) => {
    expect(announced(hook(line)).lines).toEqual(warnings.map(text => `warn route "hooks": ${text}`))
  })
})

describe('what a client announces', () => {
  const HOOKS = { route: 'hooks', path: '/hooks/{name}', methods: ['POST'] }

  it.each([
    ['host: keep', []],
    ['verify: { scheme: github, secrets: [{ file: secret }] }', []],
    ['inbox: {}', [{ ...HOOKS, mode: 'fallback' }]],
    [
      'inbox: { mode: always, answerWithin: 500ms, maxAge: 30d, lane: none }',
      [{ ...HOOKS, mode: 'always', answerWithinMs: 500, maxAgeMs: 2_592_000_000, lane: 'none' }],
    ],
    ['inbox: { verify: { scheme: github, secrets: [{ file: secret }] } }', [{ ...HOOKS, mode: 'fallback' }]],
    [
      'inbox: { verify: { scheme: stripe, secrets: [{ file: secret }] } }',
      [{ ...HOOKS, mode: 'fallback', timestamps: true }],
    ],
    [
      'inbox: { verify: { scheme: slack, secrets: [{ file: secret }] } }',
      [{ ...HOOKS, mode: 'fallback', timestamps: true, answerWithinMs: 2000 }],
    ],
    [
      'inbox: { verify: { scheme: hmac, header: X-Sig, secrets: [{ file: secret }] } }',
      [{ ...HOOKS, mode: 'fallback', signature: 'x-sig' }],
    ],
    [
      'inbox: { verify: { scheme: standard-webhooks, secrets: [{ file: standard }, { file: public }], at: edge, tolerance: 1m } }',
      [
        {
          ...HOOKS,
          mode: 'fallback',
          timestamps: true,
          verify: {
            scheme: 'standard-webhooks',
            toleranceMs: 60_000,
            secrets: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', WHPK].map(text => Buffer.from(text).toString('base64')),
          },
        },
      ],
    ],
  ])('%s', (line, rules) => {
    const sent = announced(hook(line)).rules
    expect(sent).toEqual(rules)
    const hello = { type: 'hello', minor: 0, software: 'x', instance: 'i', startedMs: 0, lastEpoch: 0, connection: 0 }
    expect(parseControl(JSON.stringify({ ...hello, inbox: sent }))).toMatchObject({ inbox: rules })
  })

  it('routes without an inbox that match some requests of one that has an inbox', () => {
    const route = (name: string, path: string, more = '') =>
      `  - { name: ${name}, match: { path: "${path}", hosts: [A.test]${more && ', methods: [POST]'} }, target: "http://127.0.0.1:1"${more} }\n`
    const text = `routes:\n${[
      route('kept', '/hooks/{a}', ', inbox: {}'),
      route('status', '/hooks/x/status'),
      route('any', '/{a}/{b}/{c}/{d}', ', allow: { d: [x] }'),
      route('other', '/api/x/status'),
      route('up', '/hooks'),
      route('beside', '/hooks/x'),
    ].join('')}`
    expect(announced(text).rules).toEqual([
      { route: 'kept', path: '/hooks/{a}', hosts: ['a.test'], methods: ['POST'], mode: 'fallback' },
      { route: 'status', path: '/hooks/x/status', hosts: ['a.test'], mode: 'off' },
      { route: 'any', path: '/{a}/{b}/{c}/{d}', hosts: ['a.test'], mode: 'off', methods: ['POST'], guarded: true },
      { route: 'beside', path: '/hooks/x', hosts: ['a.test'], mode: 'off' },
    ])
  })

  it('of the methods of such a route, those that no route with an inbox can have are not announced', () => {
    const methods = METHODS.filter(method => method !== 'CONNECT')
    const rest = 'target: "http://127.0.0.1:1"'
    const text = `routes:
  - { name: files, match: { path: /dav/files, methods: [${methods.join(', ')}] }, ${rest} }
  - { name: seen, match: { path: /dav/seen, methods: [GET] }, ${rest} }
  - { name: kept, match: { path: /dav, methods: [POST] }, ${rest}, inbox: {} }
`
    const rules: InboxRule[] = announced(text).rules
    const off = rules.filter(({ mode }) => mode === 'off')
    expect(off.map(({ route, methods }) => [route, methods?.toSorted()])).toEqual([
      ['files', ['PATCH', 'POST', 'PUT']],
      ['seen', []],
    ])
  })

  it('only a client has an inbox', async () => {
    writeFileSync(file, hook('inbox: {}'))
    await expect(serveRouter({ port: 0, routes: { file } })).rejects.toThrow(
      `${file}:5:5: inbox: only a client has an inbox; verify alone works here`,
    )
    await expect(serveRouter({ port: 0, routes: parseRoutes(hook('inbox: {}'), file) })).rejects.toThrow(
      'routes[0].inbox: only a client has an inbox',
    )
    await using service = await serveRouter({ port: 0, routes: parseRoutes(hook(), file) })
    await expect(service.reload(parseRoutes(hook('inbox: {}'), file))).rejects.toThrow('only a client has an inbox')
  })
})
