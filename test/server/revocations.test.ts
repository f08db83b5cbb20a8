/** Revocations from a file, from a URL and by hand, as live sessions notice them. */
import { chmod, lstat, mkdir, mkdtemp, readFile, rename, rm, rmdir, stat, symlink, writeFile } from 'node:fs/promises'
import type { RequestListener } from 'node:http'
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { Download } from '../../server/auth/download.ts'
import { formatRevocations, parseOwnRevocations, parseRevocations } from '../../server/auth/revocation-list.ts'
import { urlRevocations } from '../../server/auth/revocation-url.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'
import { eventually } from '../support/until.ts'
import { dial, event, makeWorld, openWebSocket, startServer, token } from './fixture.ts'

let folder: string
let file: string
let server: Server | undefined
let host: HttpsServer | undefined
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-revocations-'))
  file = join(folder, 'revocations.json')
})
afterEach(async () => {
  vi.useRealTimers()
  await server?.close({ graceMs: 0 })
  host?.closeAllConnections()
  host?.close()
  server = undefined
  host = undefined
  await rm(folder, { recursive: true })
})

async function startRevoking(revocations: object, overrides: Partial<ServerOptions> = {}): Promise<Server> {
  const { jwks } = (await makeWorld()).keys
  server = await startServer({ auth: { jwks, revocations }, ...overrides })
  return server
}

/** The server refuses the token with this id. */
const refused = async (id: string) =>
  await expect(openWebSocket(server!, { token: await token('demo', { id }) })).rejects.toMatchObject({ status: 401 })

/** Names of the tokens that the file revokes. */
const listed = async (at = file) => parseOwnRevocations(await readFile(at, 'utf8')).map(rule => rule.tokenId)

/** Rules in the form of the file and the URL. */
const listOf = (...revocations: unknown[]) => JSON.stringify({ revocations })

describe('the document', () => {
  test('has rules by jti, runtime and time of issue; times are seconds or text', () => {
    const text = listOf({ jti: 'a', until: '2030-01-01T00:00:00Z' }, { runtime: 'demo', issuedBefore: 1_700_000_000 })
    expect(parseRevocations(text)).toEqual([
      { tokenId: 'a', runtime: undefined, issuedBefore: undefined, until: 1_893_456_000 },
      { tokenId: undefined, runtime: 'demo', issuedBefore: 1_700_000_000, until: undefined },
    ])
    expect(parseRevocations(formatRevocations(parseRevocations(text)))).toEqual(parseRevocations(text))
    expect([parseRevocations(''), parseRevocations(' \n')]).toEqual([[], []])
    expect(parseRevocations(formatRevocations([]))).toEqual([])
  })

  test.each([
    ['no JSON', '<html>', 'not JSON'],
    ['a list', '[]', 'not an object'],
    ['no list', '{}', 'no list'],
    ['two lists', '{"revocations":[{"runtime":"demo"}],"revocations":[]}', 'unique members'],
    ['a rule with two runtimes', '{"revocations":[{"runtime":"demo","runtime":"other"}]}', 'unique members'],
    ['a list of another name', '{"revocations":[],"revoked":[{"runtime":"demo"}]}', 'a member besides'],
    ...['0', '2027', 'never 1', '2027-02-30', '1/2/2027', '+90d', '2027-01-01T08:00', '2027-01-01 08:00Z'].map(
      until => {
        const message = `revocation 1: until must be seconds since 1970 or a time such as 2027-01-01T00:00:00Z, and not "${until}"`
        return [`a rule that ends at ${until}`, listOf({ runtime: 'demo', until }), message]
      },
    ),
    ['a rule that names nothing', listOf({ until: 5 }), 'revocation 1: a revocation must name'],
    ['a member that nobody knows', listOf({ jti: 'a' }, { jit: 'a', runtime: 'b' }), 'revocation 2 has an unknown'],
    ['a rule that is null', listOf({ jti: 'a' }, null), 'revocation 2 is not an object'],
    ['a rule that is text', listOf('a'), 'revocation 1 is not an object'],
    ['a rule that is a list', listOf([]), 'revocation 1 is not an object'],
    ['a time that is none', listOf({ issuedBefore: 'yesterday' }), 'issuedBefore must be seconds since 1970'],
    ['a name that is none', listOf({ jti: 7 }), 'strings of 1 to 256 characters'],
    ...['Demo', 'demo.', 'demo ', 'a_b', 'x'.repeat(64)].map(runtime => {
      const message = `revocation 1: a revocation would have no effect: no token can be for the runtime "${runtime}"`
      return [`a runtime that no token can name (${runtime})`, listOf({ runtime }), message]
    }),
    ['too many', JSON.stringify({ revocations: Array.from({ length: 10_001 }, () => ({ jti: 'a' })) }), 'over 10000'],
  ])('%s is refused', (_name, text, message) => {
    expect(() => parseRevocations(text)).toThrow(message)
  })
})

describe('a file', () => {
  test('must exist and be valid before anything listens', async () => {
    await expect(startRevoking({ file })).rejects.toThrow('an empty file is an empty list')
    await writeFile(file, '{')
    await expect(startRevoking({ file })).rejects.toThrow('not JSON')
  })

  test('that an older version has written with a rule for no runtime stays as it is, and is warned of once', async () => {
    const idle = { runtime: 'Demo' }
    await writeFile(file, listOf(idle, { jti: 'stolen' }))
    const warn = vi.fn()
    await startRevoking({ file }, { logger: { ...noLogger, warn } })
    await refused('stolen')
    await dial(server!, { token: await token('demo', { id: 'mine' }) })
    expect(await server!.revoke({ tokenId: 'mine' })).toEqual({ ended: 1, kept: true })
    expect(await listed()).toEqual([undefined, 'stolen', 'mine'])
    const ofFile = warn.mock.calls.filter(([fields]) => fields.file === file)
    expect(ofFile.map(([{ err }]) => err.message)).toEqual([
      'a revocation would have no effect: no token can be for the runtime "Demo", which is not a DNS label',
    ])
    const { id } = server!.revocations().find(({ runtime }) => runtime === 'Demo')!
    expect(await server!.removeRevocation(id)).toBe(true)
    expect(await listed()).toEqual(['stolen', 'mine'])
  })

  test('is read at the start', async () => {
    await writeFile(file, listOf({ jti: 'stolen' }))
    await startRevoking({ file })
    await refused('stolen')
    await dial(server!, { token: await token('demo', { id: 'mine' }) })
  })

  test('that is replaced ends the sessions that it names, and no others; a bad one changes nothing', async () => {
    await writeFile(file, '')
    await startRevoking({ file })
    const old = await token('demo', { id: 'old' })
    const named = await dial(server!, { token: old })
    const other = await dial(server!, { runtime: 'other' })
    const fresh = join(folder, 'fresh')
    await writeFile(fresh, listOf({ runtime: 'demo' }))
    await rename(fresh, file)
    expect((await named.closed).code).toBe(4401)
    expect(other.session.closed).toBe(false)
    await writeFile(file, 'no list')
    await expect(openWebSocket(server!, { token: old })).rejects.toMatchObject({ status: 401 })
  })

  test('keeps manual revocations, beside what others wrote, over a restart', async () => {
    await writeFile(file, listOf({ jti: 'theirs' }, { jti: 'over', until: 1 }))
    await chmod(file, 0o640)
    await startRevoking({ file })
    const client = await dial(server!, { token: await token('demo', { id: 'mine' }) })
    expect(await server!.revoke({ tokenId: 'mine' })).toEqual({ ended: 1, kept: true })
    expect((await client.closed).code).toBe(4401)
    expect(await listed()).toEqual(['theirs', 'mine'])
    expect((await stat(file)).mode & 0o777).toBe(0o640)
    await server!.close({ graceMs: 0 })
    await startRevoking({ file })
    for (const id of ['mine', 'theirs']) await refused(id)
  })

  test('that is a link stays one: its target has the rules, and may be edited', async () => {
    const real = join(folder, 'real.json')
    await writeFile(real, '', { mode: 0o666 })
    await chmod(real, 0o666)
    await symlink('real.json', file)
    await startRevoking({ file })
    await server!.revoke({ tokenId: 'mine' })
    expect((await lstat(file)).isSymbolicLink()).toBe(true)
    expect(await listed(real)).toEqual(['mine'])
    expect((await stat(real)).mode & 0o777).toBe(0o666)
    const client = await dial(server!, { token: await token('demo', { id: 'theirs' }) })
    await writeFile(real, listOf({ jti: 'theirs' }))
    expect((await client.closed).code).toBe(4401)
  })

  test('that cannot be written is reported, and the rule applies anyway', async () => {
    await writeFile(file, '')
    await startRevoking({ file })
    await rm(file)
    const client = await dial(server!, { token: await token('demo', { id: 'mine' }) })
    await expect(server!.revoke({ tokenId: 'mine' })).rejects.toThrow(
      /^the rule is in force until this server stops, but could not be kept: ENOENT/,
    )
    expect(server!.revocations()).toMatchObject([{ tokenId: 'mine', from: ['memory'] }])
    expect((await client.closed).code).toBe(4401)
  })

  test('D7: is never written longer than what can be read back', async () => {
    const rules = Array.from({ length: 9_030 }, (_, i) => ({ jti: `${i}`.padEnd(220, 'x') }))
    await writeFile(file, listOf(...rules))
    await startRevoking({ file })
    const long = { tokenId: 'y'.repeat(256), runtime: 'z'.repeat(63) }
    let refusals = 0
    for (let i = 0; i < 8; i++) {
      await server!.revoke({ ...long, issuedBefore: i }).catch(error => {
        expect(error).toBeInstanceOf(RangeError)
        refusals++
      })
    }
    expect(refusals).toBeGreaterThan(0)
    expect(server!.revocations()).toHaveLength(9_038)
    expect((await stat(file)).size).toBeLessThanOrEqual(2 * 1024 * 1024)
    await server!.close({ graceMs: 0 })
    await startRevoking({ file })
    expect(server!.revocations()).toHaveLength(9_038 - refusals)
  })

  test('D7: holds 10,000 rules, and one more is refused', async () => {
    await writeFile(file, listOf(...Array.from({ length: 10_000 }, (_, i) => ({ jti: `t${i}` }))))
    await startRevoking({ file })
    await expect(server!.revoke({ tokenId: 'more' })).rejects.toThrow('there are 10000 revocations: remove some')
    expect(await listed()).toHaveLength(10_000)
  })

  test('D7: rules that are over make room for others', async () => {
    const until = Math.floor(Date.now() / 1000) - 60
    await writeFile(file, listOf(...Array.from({ length: 10_000 }, (_, i) => ({ jti: `t${i}`, until }))))
    await startRevoking({ file })
    for (const tokenId of ['one', 'another']) {
      expect(await server!.revoke({ tokenId })).toEqual({ ended: 0, kept: true })
    }
    const rules = await listed()
    expect([rules.length, ...rules.slice(0, 2)]).toEqual([10_000, 'one', 'another'])
  })

  test('A9: rules that there is no room for keep none from being written or removed', async () => {
    const rules = Array.from({ length: 9_157 }, (_, i) => ({ jti: `${i}`.padEnd(217, 'x') }))
    await writeFile(file, listOf(...rules))
    await startRevoking({ file })
    for (const text of ['ý', 'ž']) {
      const long = { tokenId: text.repeat(256), runtime: 'demo' }
      await expect(server!.revoke(long)).rejects.toThrow('2097152 bytes: remove some')
    }
    expect(await server!.revoke({ tokenId: 'short' })).toEqual({ ended: 0, kept: true })
    const idOf = (start: string) => server!.revocations().find(({ tokenId }) => tokenId?.startsWith(start))!.id
    for (const start of ['0x', 'ý', 'short']) expect(await server!.removeRevocation(idOf(start))).toBe(true)
    expect(await listed()).toHaveLength(9_156)
    expect(server!.revocations().at(-1)).toMatchObject({ tokenId: 'ž'.repeat(256), from: ['memory'] })
  })

  test('a rule that could not be written applies when the file changes, and is written then', async () => {
    await writeFile(file, '')
    await startRevoking({ file })
    await rm(file)
    await expect(server!.revoke({ tokenId: 'mine' })).rejects.toThrow('ENOENT')
    await writeFile(file, listOf({ jti: 'theirs' }))
    await eventually(async () => expect(await listed()).toEqual(['theirs', 'mine']))
    expect(server!.revocations().map(rule => rule.tokenId)).toEqual(['theirs', 'mine'])
    for (const id of ['mine', 'theirs']) await refused(id)
  })

  test('a clock that is wrong for a while loses no rule', async () => {
    let now = Date.now()
    await writeFile(file, listOf({ jti: 'stolen', until: now / 1000 + 60 }))
    await startRevoking({ file }, { clock: () => now })
    now += 3_600_000
    await server!.revoke({ tokenId: 'other' })
    now -= 3_600_000
    await refused('stolen')
  })

  test('A9: a rule is removed from it again', async () => {
    await writeFile(file, listOf({ jti: 'theirs' }))
    await startRevoking({ file })
    await server!.revoke({ runtime: 'demo' })
    const rules = server!.revocations()
    expect(rules.map(({ from }) => from)).toEqual([['file'], ['file']])
    expect(await server!.removeRevocation('nothing')).toBe(false)
    for (const { id } of rules) expect(await server!.removeRevocation(id)).toBe(true)
    expect(await listed()).toEqual([])
    await dial(server!, { token: await token('demo', { id: 'theirs' }) })
  })

  describe('on a disk that cannot be written', () => {
    const fresh = () => `${file}.next`
    const idOf = (tokenId: string) => server!.revocations().find(rule => rule.tokenId === tokenId)!.id

    test('A9: a rule that could not be removed applies, and is removed later', async () => {
      await writeFile(file, listOf({ jti: 'stolen' }))
      await startRevoking({ file })
      await mkdir(fresh())
      await expect(server!.removeRevocation(idOf('stolen'))).rejects.toThrow('EISDIR')
      await refused('stolen')
      await rmdir(fresh())
      expect(await server!.removeRevocation(idOf('stolen'))).toBe(true)
      await dial(server!, { token: await token('demo', { id: 'stolen' }) })
      expect(await listed()).toEqual([])
    })

    test('A9: one that was never written is taken back, and the others apply', async () => {
      const text = `\n${listOf({ jti: 'theirs' })}\n`
      await writeFile(file, text)
      await startRevoking({ file })
      await mkdir(fresh())
      await expect(server!.revoke({ tokenId: 'mine' })).rejects.toThrow('EISDIR')
      expect(await server!.removeRevocation(idOf('mine'))).toBe(true)
      await dial(server!, { token: await token('demo', { id: 'mine' }) })
      for (const id of ['one', 'two']) await expect(server!.revoke({ tokenId: id })).rejects.toThrow('EISDIR')
      await expect(server!.removeRevocation(idOf('one'))).rejects.toThrow('EISDIR')
      for (const id of ['one', 'two', 'theirs']) await refused(id)
      expect(await readFile(file, 'utf8')).toBe(text)
      await rmdir(fresh())
      expect(await server!.removeRevocation(idOf('one'))).toBe(true)
      expect(await listed()).toEqual(['theirs', 'two'])
    })
  })

  test('holds many rules at once', async () => {
    await writeFile(file, '')
    await startRevoking({ file })
    await Promise.all(Array.from({ length: 50 }, (_, i) => server!.revoke({ tokenId: `t${i}` })))
    expect(await listed()).toHaveLength(50)
    expect(server!.revocations()).toHaveLength(50)
  })
})

describe('by hand', () => {
  test('tokens issued before a time are revoked; later ones work', async () => {
    await startRevoking({})
    const early = await dial(server!)
    const { ended } = await server!.revoke({ runtime: 'demo', issuedBefore: Math.floor(Date.now() / 1000) + 1 })
    expect([ended, (await early.closed).code]).toEqual([1, 4401])
    expect(server!.revocations()).toHaveLength(1)
  })

  test('W6: what a token says about its own time of issue does not keep its session', async () => {
    await startRevoking({})
    await dial(server!, { token: await token('demo', { now: Date.now() + 86_400_000 }) })
    expect(await server!.revoke({ issuedBefore: Date.now() / 1000 + 1 })).toMatchObject({ ended: 1 })
  })

  test('until a time', async () => {
    let now = Date.now()
    await startRevoking({}, { clock: () => now })
    const client = await dial(server!)
    await server!.revoke({ runtime: 'demo', until: now / 1000 + 60 })
    expect((await client.closed).code).toBe(4401)
    await expect(openWebSocket(server!, {})).rejects.toMatchObject({ status: 401 })
    // Tokens that expire then may be accepted for a minute more.
    now += 119_000
    await expect(openWebSocket(server!, {})).rejects.toMatchObject({ status: 401 })
    now += 2_000
    await dial(server!)
    expect(server!.revocations()).toEqual([])
  })

  test('A9: and taken back', async () => {
    await startRevoking({})
    await server!.revoke({ runtime: 'demo' })
    await expect(openWebSocket(server!, {})).rejects.toMatchObject({ status: 401 })
    const [rule] = server!.revocations()
    expect(rule!.from).toEqual(['memory'])
    expect(await server!.removeRevocation(rule!.id)).toBe(true)
    await dial(server!)
  })

  test('a rule that names nothing is misuse', async () => {
    await startRevoking({})
    await expect(server!.revoke({ until: 5 })).rejects.toThrow(TypeError)
    await expect(server!.revoke({ runtime: 'Demo' })).rejects.toThrow('no token can be for the runtime "Demo"')
    const [nowS, inMs] = [Date.now() / 1000, Date.now()]
    await expect(server!.revoke({ runtime: 'demo', until: nowS - 60 })).rejects.toThrow(
      'a revocation would have no effect',
    )
    await expect(server!.revoke({ runtime: 'demo', issuedBefore: inMs })).rejects.toThrow('not milliseconds')
    expect(server!.revocations()).toEqual([])
    // It would revoke all tokens.
    const misspelt = { runtimes: 'demo', issuedBefore: 5 }
    await expect(server!.revoke(misspelt)).rejects.toThrow('runtimes is unknown: did you mean runtime?')
    expect(server!.revocations()).toEqual([])
  })
})

describe('a URL', () => {
  /** Serves what `answer` writes, over TLS. */
  async function serve(answer: RequestListener): Promise<{ url: string; ca: string }> {
    const made = await makeWorld()
    host = createHttpsServer({ cert: made.server.certificate, key: made.server.key }, answer).listen(0, '127.0.0.1')
    await new Promise(resolve => host!.once('listening', resolve))
    const { port } = host.address() as AddressInfo
    return { url: `https://127.0.0.1:${port}/revocations.json`, ca: made.authority.certificate }
  }

  test('is polled; what it names ends within 10 s, and the last good list is kept', async () => {
    let list = listOf()
    let requests = 0
    let status = 200
    const seen: Array<string | undefined> = []
    const at = await serve((request, response) => {
      requests++
      seen.push(request.headers['if-none-match'])
      response.writeHead(status, { etag: `"${requests}"`, location: 'https://127.0.0.1:1/' }).end(list)
    })
    await startRevoking(at)
    const client = await dial(server!, { token: await token('demo', { id: 'stolen' }) })
    expect([requests, seen]).toEqual([1, [undefined]])
    list = listOf({ jti: 'stolen' })
    expect((await client.closed).code).toBe(4401)
    expect(seen[1]).toBe('"1"')
    status = 503
    await refused('stolen')
    expect(server!.ready()).toBe(true)
  })

  test.each([
    ['redirects', 302, listOf()],
    ['is no list', 200, '<html>'],
    ['is empty', 200, ''],
    ['is down', 503, listOf()],
    ['is too large', 200, ' '.repeat(3 * 1024 * 1024)],
  ])('that %s lets nobody in, and the server is not ready', async (_name, status, body) => {
    const at = await serve((_request, response) => {
      response.writeHead(status, { location: 'https://127.0.0.1:1/' }).end(body)
    })
    await startRevoking(at)
    expect(server!.ready()).toBe(false)
    const refused = event(server!, 'refused')
    await expect(openWebSocket(server!, {})).rejects.toMatchObject({ status: 503 })
    expect((await refused).reason).toBe('keys-unavailable')
  })

  test('that is refused is not one that could not be fetched, and the log says once what is wrong', async () => {
    let body = listOf({ runtime: 'Demo' })
    const { url, ca } = await serve((_request, response) => response.end(body))
    const error = vi.fn()
    const list = urlRevocations({ url, ca }, { ...noLogger, error }, () => {})
    await list.start()
    for (const text of [body, '', listOf({ jti: 'stolen' }), '']) {
      body = text
      await list.refresh(0)
    }
    list.close()
    expect(error.mock.calls.map(([{ err }, line]) => [line, err.message])).toEqual([
      [
        'the list of revocations was fetched, but is bad; there is none yet',
        expect.stringMatching(/^revocation 1: .*"Demo"/),
      ],
      ['the list of revocations was fetched, but is bad; there is none yet', 'the document is empty'],
      ['the list of revocations was fetched, but is bad; the last good one stays', 'the document is empty'],
    ])
  })

  test.each([
    [200, 'x'.repeat(101), 'the document is over 100 bytes'],
    [204, '', 'the server answered 204'],
    [302, 'text', 'the server answered 302'],
    [304, '', 'the server answered 304'],
    [404, 'text', 'the server answered 404'],
  ])('that answers %i reports what is wrong with it', async (status, body, reason) => {
    const { url, ca } = await serve((_request, response) => response.writeHead(status).end(body))
    const download = new Download({ url, ca, accept: '*/*', maxBytes: 100, parse: String })
    await expect(download.get()).rejects.toThrow(new Error(reason))
    download.close()
  })

  test.each([
    ['as a failed condition', 412],
    ['as too long', 431],
  ])('whose server refuses the tag that it gave out %s is fetched without it', async (_name, status) => {
    const tags: Array<string | undefined> = []
    const { url, ca } = await serve(({ headers }, response) => {
      const tag = headers['if-none-match']
      tags.push(tag)
      if (tags.length === 2) response.writeHead(304).end()
      else response.writeHead(tag === undefined ? 200 : status, { etag: '"a"' }).end('text')
    })
    const download = new Download({ url, ca, accept: '*/*', maxBytes: 100, parse: String })
    expect(await download.get()).toBe('text')
    expect(await download.get()).toBeUndefined()
    expect(await download.get()).toBe('text')
    expect(await download.get()).toBe('text')
    expect(tags).toEqual([undefined, '"a"', '"a"', undefined, '"a"', undefined])
    download.close()
  })

  test('A9: has rules that can be taken back only there, and says so', async () => {
    const at = await serve((_request, response) => response.end(listOf({ jti: 'stolen' })))
    await startRevoking(at)
    const [rule] = server!.revocations()
    const there = new Error('auth.revocations.url lists the rule: remove it there')
    await expect(server!.removeRevocation(rule!.id)).rejects.toThrow(there)
    expect(server!.revocations()).toEqual([rule])
  })

  test('must be https', async () => {
    await expect(startRevoking({ url: 'http://127.0.0.1/' })).rejects.toThrow(
      'auth.revocations.url must be an https URL',
    )
  })
})
