/** `sallyport keys add|list|retire`, `certs renew`, and what `certs client` and `token create` may overwrite. */
import { execFileSync } from 'node:child_process'
import { createPrivateKey, X509Certificate } from 'node:crypto'
import {
  chmodSync,
  createReadStream,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import type * as promises from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createAuthority, inspectCertificates, REPLICA_NAME } from '../../certs/index.ts'
import { type OddCertificate, oddCertificate } from '../support/odd-certificates.ts'
import { until } from '../support/until.ts'
import { sallyport } from './run.ts'

/** Whether files cannot be removed, and which one cannot be replaced. */
const stuck = vi.hoisted(() => ({ yes: false, place: '' }))
vi.mock('node:fs/promises', async original => {
  const real = await original<typeof promises>()
  const rm: typeof real.rm = (...args) =>
    stuck.yes ? Promise.reject(Object.assign(new Error('EACCES'), { code: 'EACCES' })) : real.rm(...args)
  const rename: typeof real.rename = (from, to) =>
    to === stuck.place ? Promise.reject(Object.assign(new Error('EACCES'), { code: 'EACCES' })) : real.rename(from, to)
  return { ...real, rename, rm }
})

let folder: string
const file = (name: string) => join(folder, name)
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-keys-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

describe('keys', () => {
  const keysOf = () => JSON.parse(readFileSync(file('jwks.json'), 'utf8')).keys as { kid: string }[]
  const add = (...more: string[]) =>
    sallyport(['keys', 'add', '--jwks', file('jwks.json'), '--out', file('next.jwk'), ...more])
  const retire = (kid: string) => sallyport(['keys', 'retire', '--jwks', file('jwks.json'), '--kid', kid])

  test('add keeps the existing keys, and the new private key is secret and not replaced', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    const [first] = keysOf()
    writeFileSync(file('jwks.json'), JSON.stringify({ keys: keysOf(), issuer: 'kept' }))
    expect((await add('--alg', 'ES256')).out).toBe(`${file('next.jwk')}\n${file('jwks.json')}\n`)
    const next = JSON.parse(readFileSync(file('next.jwk'), 'utf8'))
    expect(JSON.parse(readFileSync(file('jwks.json'), 'utf8'))).toMatchObject({
      keys: [first, { kid: next.kid, alg: 'ES256' }],
      issuer: 'kept',
    })
    expect(JSON.stringify(keysOf())).not.toContain(next.d)
    expect(statSync(file('next.jwk')).mode & 0o777).toBe(0o600)
    const again = await add()
    expect([again.code, again.notes]).toEqual([3, expect.stringContaining('already exists')])
    expect(keysOf()).toHaveLength(2)
    expect((await sallyport(['keys', 'list', '--jwks', file('jwks.json')])).out).toContain('ES256')
  })

  test('retire removes one key by its id, and never the last', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    await add()
    const [first, second] = keysOf() as [{ kid: string }, { kid: string }]
    expect((await retire('nobody')).notes).toContain('has no key nobody')
    expect((await retire('')).notes).toContain('has no key')
    expect((await retire(first.kid)).code).toBe(0)
    expect(keysOf()).toMatchObject([{ kid: second.kid }])
    const refused = async () => {
      const last = await retire(second.kid)
      expect([last.code, last.notes]).toEqual([3, expect.stringContaining('is the last key')])
    }
    await refused()
    // A key for encryption verifies no token.
    writeFileSync(file('jwks.json'), JSON.stringify({ keys: [...keysOf(), { ...first, use: 'enc' }] }))
    await refused()
  })

  test('the set is not replaced by the private key', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    const before = keysOf()
    symlinkSync(file('jwks.json'), file('link'))
    for (const out of [file('jwks.json'), file('link')]) {
      const { code, notes } = await sallyport(['keys', 'add', '--jwks', file('jwks.json'), '--out', out, '--force'])
      expect([code, notes]).toEqual([2, expect.stringContaining(`${out} is the key set: give another --out`)])
    }
    expect(keysOf()).toEqual(before)
  })

  test('nor is the lock of the set, which another command would remove', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    const before = keysOf()
    const out = file('jwks.json.next')
    for (const more of [[], ['--force']]) {
      const { code, notes } = await sallyport(['keys', 'add', '--jwks', file('jwks.json'), '--out', out, ...more])
      expect([code, notes]).toEqual([2, expect.stringContaining(`${out} locks the key set: give another --out`)])
    }
    expect(readdirSync(folder).sort()).toEqual(['jwks.json', 'private.jwk'])
    expect(keysOf()).toEqual(before)
  })

  test('a private key whose set could not be written is removed, unless its file was there before', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    const before = keysOf()
    stuck.place = file('jwks.json')
    const refused = [3, expect.stringContaining(`cannot write ${file('jwks.json')}: permission denied`)]
    const made = await add()
    expect([made.code, made.notes]).toEqual(refused)
    expect(readdirSync(folder).sort()).toEqual(['jwks.json', 'private.jwk'])
    writeFileSync(file('next.jwk'), 'mine')
    const replaced = await add('--force')
    expect([replaced.code, replaced.notes]).toEqual(refused)
    expect(existsSync(file('next.jwk'))).toBe(true)
    stuck.place = ''
    expect(keysOf()).toEqual(before)
  })

  test('add has succeeded even if its lock cannot be removed, and says which file is left', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    stuck.yes = true
    const { code, notes } = await add()
    stuck.yes = false
    expect([code, notes]).toEqual([
      0,
      expect.stringContaining(`cannot remove ${file('jwks.json')}.next: permission denied`),
    ])
    expect(keysOf()).toHaveLength(2)
  })

  test('concurrent commands each add their key', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    const outs = Array.from({ length: 5 }, (_, i) => file(`added-${i}.jwk`))
    const runs = await Promise.all(
      outs.map(out => sallyport(['keys', 'add', '--jwks', file('jwks.json'), '--out', out])),
    )
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0])
    const added = outs.map(out => JSON.parse(readFileSync(out, 'utf8')).kid as string)
    expect(keysOf().map(({ kid }) => kid)).toEqual(expect.arrayContaining(added))
    expect(keysOf()).toHaveLength(6)
    expect(readdirSync(folder).filter(name => name.endsWith('.next'))).toEqual([])
  })

  test('one that took so long that another one went ahead takes nothing away, and says so', async () => {
    await sallyport(['keys', 'create', '--out', folder])
    execFileSync('mkfifo', [file('pipe')])
    const args = ['keys', 'add', '--jwks', file('jwks.json'), '--out']
    const slow = sallyport([...args, file('pipe'), '--force'])
    await until(() => existsSync(file('jwks.json.next')))
    // As if it had taken five seconds.
    rmSync(file('jwks.json.next'))
    expect((await sallyport([...args, file('fast.jwk')])).code).toBe(0)
    const before = keysOf()
    createReadStream(file('pipe')).resume()
    const { code, notes } = await slow
    expect([code, notes]).toEqual([3, expect.stringContaining('now belongs to another process')])
    expect(keysOf()).toEqual(before)
  })

  test('a set that a server would not read is left alone, and none is filled beyond what it reads', async () => {
    writeFileSync(file('jwks.json'), JSON.stringify({ keys: [{ kty: 'oct', k: 'c2VjcmV0' }] }))
    const { code, notes } = await add()
    expect([code, notes.includes('c2VjcmV0')]).toEqual([3, false])
    await sallyport(['keys', 'create', '--out', folder, '--force'])
    const full = Array.from({ length: 64 }, (_, i) => ({ ...keysOf()[0]!, kid: `k${i}` }))
    writeFileSync(file('jwks.json'), JSON.stringify({ keys: full }))
    expect((await add()).notes).toContain('over 64 keys')
    expect(keysOf()).toHaveLength(64)
  })
})

const URI = { type: 'url', value: 'spiffe://a/b' } as const
const RUNTIME = { type: 'url', value: 'urn:sallyport:runtime:demo' } as const
const REPLICA = { type: 'dns', value: REPLICA_NAME } as const

describe('certs renew', () => {
  const read = (name: string) => readFileSync(file(name), 'utf8')
  const report = (name: string) => inspectCertificates(read(name))[0]!

  test('renews each kind, for the same names and use, with another key', async () => {
    const hosts = ['a.example.com', '*.a.example.com', '127.0.0.1', '::1']
    await sallyport(['certs', 'init', '--out', folder, '--host', ...hosts])
    await sallyport(['certs', 'client', '--out', folder, '--runtime', 'demo'])
    await sallyport(['certs', 'replica', '--out', folder])
    for (const name of ['server', 'demo', 'replica']) {
      const [before, key] = [report(`${name}.pem`), read(`${name}-key.pem`)]
      const { code, out } = await sallyport(['certs', 'renew', file(`${name}.pem`), '--days', '10'])
      expect([code, out]).toEqual([0, `${file(`${name}-key.pem`)}\n${file(`${name}.pem`)}\n`])
      const after = report(`${name}.pem`)
      const { names, runtime, usages, subject } = before
      expect(after).toMatchObject({ names, runtime, usages, subject })
      expect([after.serialNumber === before.serialNumber, read(`${name}-key.pem`) === key]).toEqual([false, false])
      expect(statSync(file(`${name}-key.pem`)).mode & 0o777).toBe(0o600)
    }
  })

  test('leaves the files to the service that owns them', async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    await sallyport(['keys', 'create', '--out', folder])
    for (const name of ['server-key.pem', 'jwks.json']) chmodSync(file(name), 0o640)
    await sallyport(['certs', 'renew', file('server.pem')])
    await sallyport(['keys', 'add', '--jwks', file('jwks.json'), '--out', file('next.jwk')])
    const modes = ['server-key.pem', 'server.pem', 'jwks.json', 'next.jwk'].map(
      name => statSync(file(name)).mode & 0o777,
    )
    expect(modes).toEqual([0o640, 0o644, 0o640, 0o600])
    await sallyport(['keys', 'retire', '--jwks', file('jwks.json'), '--kid', JSON.parse(read('next.jwk')).kid])
    expect(statSync(file('jwks.json')).mode & 0o777).toBe(0o640)
  })

  test('waits until the expiry is near, with --before', async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com', '--days', '20'])
    const before = read('server.pem')
    const { code, notes } = await sallyport(['certs', 'renew', file('server.pem'), '--before', '10d'])
    expect([code, notes]).toEqual([0, expect.stringContaining('nothing to do')])
    expect(read('server.pem')).toBe(before)
    await sallyport(['certs', 'renew', file('server.pem'), '--before', '30d'])
    expect(read('server.pem')).not.toBe(before)
  })

  test('says when a certificate cannot outlast its authority', async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example'])
    const now = Date.now() - 1795 * 86_400_000
    const old = await createAuthority({ now })
    const other = await createAuthority()
    writeFileSync(file('ca.pem'), other.certificate + old.certificate)
    writeFileSync(file('ca-key.pem'), old.key)
    const said = async (days: string) => (await sallyport(['certs', 'renew', file('server.pem'), '--days', days])).notes
    expect(await said('20')).toBe('')
    expect(await said('40')).toContain('expires together with its authority')
    for (const kind of [['server', '--host', 'b.example'], ['client', '--runtime', 'demo'], ['replica']]) {
      const { notes } = await sallyport(['certs', ...kind, '--ca', folder, '--out', file('more')])
      expect(notes).toContain('expires together with its authority')
    }
  })

  test("renews no authority, and nothing without the authority's key", async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    expect((await sallyport(['certs', 'renew', file('ca.pem')])).notes).toContain('is an authority')
    rmSync(file('ca-key.pem'))
    const before = read('server.pem')
    expect((await sallyport(['certs', 'renew', file('server.pem')])).code).toBe(3)
    expect(read('server.pem')).toBe(before)
  })

  test('renews nothing if it does not find the key', async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    const before = read('server.pem')
    renameSync(file('server-key.pem'), file('other.key'))
    const { code, notes } = await sallyport(['certs', 'renew', file('server.pem')])
    expect([code, notes, read('server.pem')]).toEqual([3, expect.stringContaining('the key (--key)'), before])
    expect((await sallyport(['certs', 'renew', file('server.pem'), '--key', file('other.key')])).code).toBe(0)
    expect(new X509Certificate(read('server.pem')).checkPrivateKey(createPrivateKey(read('other.key')))).toBe(true)
  })

  test('several at once leave a key that fits the certificate, and renew what is due once', async () => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com', '--days', '1'])
    const renew = ['certs', 'renew', file('server.pem'), '--before', '2d']
    const runs = await Promise.all(Array.from({ length: 5 }, () => sallyport(renew)))
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0])
    expect(runs.filter(({ notes }) => notes.includes('nothing to do'))).toHaveLength(4)
    expect(new X509Certificate(read('server.pem')).checkPrivateKey(createPrivateKey(read('server-key.pem')))).toBe(true)
  })

  test.each<[string, OddCertificate]>([
    ['a second use', { usage: ['serverAuth', 'clientAuth'], names: [{ type: 'dns', value: 'a.example.com' }] }],
    ['a name of another type', { usage: 'serverAuth', names: [{ type: 'dns', value: 'a.example.com' }, URI] }],
    ['a host beside the runtime', { names: [RUNTIME, { type: 'dns', value: 'demo.internal' }] }],
    [
      'a host beside the name of replicas',
      { usage: ['serverAuth', 'clientAuth'], names: [REPLICA, { type: 'dns', value: 'a' }] },
    ],
    ['the name of replicas, for only one use', { usage: 'serverAuth', names: [REPLICA] }],
  ])('renews no certificate that would lose something: %s', async (_, options) => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    const odd = await oddCertificate({ certificate: read('ca.pem'), key: read('ca-key.pem') }, options)
    writeFileSync(file('odd.pem'), odd.certificate)
    writeFileSync(file('odd-key.pem'), odd.key)
    const { code, notes } = await sallyport(['certs', 'renew', file('odd.pem')])
    expect([code, notes]).toEqual([3, expect.stringContaining('odd.pem has names or uses')])
    expect([read('odd.pem'), read('odd-key.pem')]).toEqual([odd.certificate, odd.key])
  })

  test.each([
    ['the authority', 'ca-key.pem', 'is the authority'],
    ['the authority, by another path', 'link.pem', 'is the authority'],
    ['a key for tokens', 'private.jwk', 'has no private key'],
    ['the certificate itself', 'server.pem', 'has both certificate and key'],
  ])('writes no key over %s', async (_, key, problem) => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    await sallyport(['keys', 'create', '--out', folder])
    symlinkSync('ca-key.pem', file('link.pem'))
    writeFileSync(file('server.pem'), read('server.pem') + read('server-key.pem'))
    const before = [read(key), read('server.pem')]
    const { code, notes } = await sallyport(['certs', 'renew', file('server.pem'), '--key', file(key)])
    expect([code, notes, [read(key), read('server.pem')]]).toEqual([3, expect.stringContaining(problem), before])
  })
})

test('token create does not overwrite the key that signs it', async () => {
  await sallyport(['keys', 'create', '--out', folder])
  const before = readFileSync(file('private.jwk'), 'utf8')
  symlinkSync('private.jwk', file('link'))
  for (const name of ['private.jwk', 'link']) {
    const args = ['token', 'create', '--key', file('private.jwk'), '--runtime', 'demo', '--out', file(name)]
    const { code, notes } = await sallyport(args)
    expect([code, notes]).toEqual([2, expect.stringContaining('is the key')])
  }
  expect(readFileSync(file('private.jwk'), 'utf8')).toBe(before)
})

test.each(['ca', 'ca-key'])(
  'certs client for %s does not overwrite the authority, whatever its arguments',
  async runtime => {
    await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example.com'])
    const authority = () => ['ca.pem', 'ca-key.pem'].map(name => readFileSync(file(name), 'utf8'))
    const before = authority()
    const args = ['certs', 'client', '--ca', folder, '--runtime', runtime, '--force', '--out']
    const { code, notes } = await sallyport([...args, folder])
    expect([code, notes, authority()]).toEqual([3, expect.stringContaining('is the authority'), before])
    symlinkSync(folder, file('link'))
    expect((await sallyport([...args, file('link')])).notes).toContain('is the authority')
    expect((await sallyport([...args, file('clients')])).code).toBe(0)
    expect(authority()).toEqual(before)
  },
)
