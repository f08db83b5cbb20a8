/** The small pure parts of the server. */
import { describe, expect, test } from 'vitest'
import { parseUniqueObject } from '../../server/auth/json.ts'
import { Revocations } from '../../server/auth/revocations.ts'
import { Hosts } from '../../server/edge/hosts.ts'
import { Policies } from '../../server/edge/policies.ts'
import { Replay, ReplayBudget } from '../../server/edge/replay.ts'
import { Events } from '../../protocol/base/events.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { readProxyHeader } from '../../server/socket/proxy-protocol.ts'

describe('hosts', () => {
  const hosts = new Hosts(['tunnels.example.com', 'b.example'], 'connect.tunnels.example.com')
  test.each([
    ['demo.tunnels.example.com', 'demo'],
    ['DEMO.Tunnels.Example.COM:443', 'demo'],
    ['x.b.example.', 'x'],
    ['b.example', undefined],
    ['x.y.b.example', undefined],
    ['x_y.b.example', undefined],
    ['', undefined],
    ['.b.example', undefined],
    ['[::1]:80', undefined],
    [`${'x'.repeat(64)}.b.example`, undefined],
  ])('%j is %j', (authority, runtime) => {
    expect(hosts.runtimeOf(authority)).toBe(runtime)
  })

  test("the control endpoint's name is no runtime, though it lies under a domain", () => {
    expect(hosts.match('connect.tunnels.example.com:443')).toEqual({ kind: 'control' })
    expect(hosts.match('connect.b.example').kind).toBe('runtime')
  })
})

describe('policies', () => {
  const policy = (origin: string) => ({ origins: [origin] })

  test('the longest prefix of whole segments counts', () => {
    const policies = new Policies(policy('fallback'), 1000, () => 0)
    const rules = ['/', '/app', '/app/deep/'].map(path => ({ path, policy: policy(path) }))
    policies.publish('r', rules)
    const found = (path: string) => policies.find('r', path, true)?.origins[0]
    expect(['/x', '/app', '/app?q=/app/deep/', '/apple', '/app/deep', '/app/deep/x'].map(found)).toEqual([
      '/',
      '/app',
      '/app',
      '/',
      '/app',
      '/app/deep/',
    ])
    expect(policies.find('other', '/', true)?.origins).toEqual(['fallback'])
    policies.publish('r', [])
    expect(found('/app')).toBe('fallback')
  })

  test('are bounded: what was published longest ago goes first', () => {
    const policies = new Policies(undefined, 1000, () => 0)
    for (let i = 0; i <= 10_000; i++) policies.publish(`r${i}`, [{ path: '/', policy: policy('o') }])
    expect(policies.find('r0', '/', true)).toBeUndefined()
    expect(policies.find('r1', '/', true)).toBeDefined()
  })
})

describe('replay', () => {
  test('keeps what comes up to the bound of one exchange and of all', () => {
    const budget = new ReplayBudget(100, 600)
    const one = new Replay(budget, 'rt')
    const two = new Replay(budget, 'rt')
    one.taken = true
    two.taken = true
    one.add(new Uint8Array(90))
    two.add(new Uint8Array(60))
    expect([one.whole, two.whole, budget.used]).toEqual([true, true, 150])
    one.add(new Uint8Array(1))
    expect([one.whole, one.chunks.length, budget.used]).toEqual([false, 0, 60])
    two.release()
    two.release()
    expect(budget.used).toBe(0)
  })

  test('keeps more until the peer has taken it', () => {
    const budget = new ReplayBudget(100, 1_800)
    const [one, two] = [new Replay(budget, 'rt'), new Replay(budget, 'rt')]
    one.add(new Uint8Array(400))
    two.add(new Uint8Array(51))
    expect([one.whole, one.long, two.whole, budget.used]).toEqual([true, true, false, 400])
    one.taken = true
    expect([one.whole, budget.used]).toEqual([false, 0])
    const three = new Replay(budget, 'rt')
    three.add(new Uint8Array(401))
    expect([three.whole, budget.used]).toEqual([false, 0])
  })

  test('B3 one runtime keeps a quarter of it all, and takes nothing from another', () => {
    const budget = new ReplayBudget(100, 400)
    const replays = Array.from({ length: 5 }, () => new Replay(budget, 'greedy'))
    for (const replay of replays) replay.add(new Uint8Array(25))
    expect([replays.map(({ whole }) => whole), budget.used]).toEqual([[true, true, true, true, false], 100])
    const other = new Replay(budget, 'other')
    other.add(new Uint8Array(100))
    expect([other.whole, budget.used]).toEqual([true, 200])
    replays[0]!.release()
    const again = new Replay(budget, 'greedy')
    again.add(new Uint8Array(25))
    expect([again.whole, budget.used]).toEqual([true, 200])
  })

  test('a small piece of a large buffer is copied', () => {
    const replay = new Replay(new ReplayBudget(100, 400), 'rt')
    const large = Buffer.alloc(65_536, 'a')
    replay.add(large.subarray(0, 10))
    large.fill('b')
    expect(replay.chunks[0]!.buffer.byteLength).toBe(10)
    expect(Buffer.from(replay.chunks[0]!).toString()).toBe('a'.repeat(10))
  })

  test.each([1, 100, 511])('pieces of %i bytes between large ones take little more memory than they have', piece => {
    const replay = new Replay(new ReplayBudget(65_536, 1_048_576), 'rt')
    for (let i = 0; i < 60; i++) {
      replay.add(Buffer.alloc(piece, i))
      replay.add(new Uint8Array(1024))
    }
    const { chunks, bytes } = replay
    expect(Buffer.concat(chunks)).toEqual(
      Buffer.concat(Array.from({ length: 60 }, (_, i) => [Buffer.alloc(piece, i), Buffer.alloc(1024)]).flat()),
    )
    expect(chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(2 * bytes)
  })

  test.each([1, 7, 1023])('what comes in pieces of %i bytes is kept in few, and in little more memory', piece => {
    const body = Buffer.from(Array.from({ length: 50_000 }, (_, i) => i % 251))
    const replay = new Replay(new ReplayBudget(50_000, 200000), 'rt')
    for (let at = 0; at < body.length; at += piece) replay.add(body.subarray(at, at + piece))
    expect(replay.chunks.length).toBeLessThanOrEqual(32)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
    expect(Buffer.concat(replay.chunks)).toEqual(body)
    expect([replay.bytes, replay.whole]).toEqual([50_000, true])
  })

  test('small pieces between large ones keep little more memory than their own', () => {
    const replay = new Replay(new ReplayBudget(50_000, 200_000), 'rt')
    while (replay.bytes < 48_000) {
      replay.add(new Uint8Array(1))
      replay.add(new Uint8Array(1024))
    }
    expect(replay.whole).toBe(true)
    expect(replay.chunks.reduce((sum, chunk) => sum + chunk.buffer.byteLength, 0)).toBeLessThanOrEqual(100_000)
  })

  test('what was sent again stays as it was, and small and large pieces keep their order', () => {
    const replay = new Replay(new ReplayBudget(10_000, 40000), 'rt')
    const pieces = ['a', 'bc', 'd'.repeat(2000), 'e', 'f', 'g'.repeat(2000), 'h']
    let sent = ''
    for (const piece of pieces) {
      replay.add(Buffer.from(piece))
      const chunks = replay.chunks
      sent += piece
      expect(Buffer.concat(chunks).toString()).toBe(sent)
    }
    replay.release()
    expect([replay.chunks.length, replay.bytes]).toEqual([0, 0])
  })
})

describe('the PROXY protocol header', () => {
  const signature = '0d0a0d0a000d0a515549540a'
  const v4 = Buffer.from(`${signature}2111000ccb007109${'0a000001'}100001bb`, 'hex')
  const v6 = Buffer.from(`${signature}21210024${'20010db8'.padEnd(32, '0')}${'0'.repeat(32)}100001bb`, 'hex')

  test('is read at every cut', () => {
    for (let i = 0; i < v4.length; i++) expect(readProxyHeader(v4.subarray(0, i))).toEqual({ done: false })
    expect(readProxyHeader(Buffer.concat([v4, Buffer.from('rest')]))).toEqual({
      done: true,
      length: 28,
      address: '203.0.113.9',
    })
    expect(readProxyHeader(v6)).toEqual({ done: true, length: 52, address: '2001:db8::' })
  })

  test("the proxy's own health check has no address", () => {
    expect(readProxyHeader(Buffer.from(`${signature}20000000`, 'hex'))).toEqual({
      done: true,
      length: 16,
      address: undefined,
    })
  })

  test.each([
    '47455420',
    `${signature}11110000`,
    `${signature}22110000`,
    `${signature}2111ffff`,
    `${signature}21310000`,
    `${signature}2111000400000000`,
  ])('%s is refused', hex => {
    expect(readProxyHeader(Buffer.from(hex, 'hex'))).toMatchObject({ done: true, error: expect.any(String) })
  })
})

test('an object with a member twice is told from one without, at every depth', () => {
  for (const text of ['{}', '{"a":":","b":{"a":[{"a":1}]}}', '{"a\\"":1,"\\\\":"\\\\"}']) {
    expect(parseUniqueObject(text)).toEqual(JSON.parse(text))
  }
  for (const text of ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '{"x":[{"a":1,"a":2}]}', '[]', 'null', '"{}"', '{']) {
    expect(parseUniqueObject(text)).toBeUndefined()
  }
  expect(parseUniqueObject('{"__proto__":{"sub":"x"}}')?.sub).toBeUndefined()
})

describe('revocations', () => {
  const identity = {
    runtime: 'demo',
    subject: 'demo',
    issuer: undefined,
    tokenId: 'id',
    issuedAt: 100,
    expiresAt: 200,
    certificateThumbprint: undefined,
    allowCallers: undefined,
  }

  test('every member that is given must fit', () => {
    const covered = (rule: object) => {
      const revocations = new Revocations(() => 0)
      revocations.add(rule)
      return revocations.covers(identity)
    }
    expect(covered({ tokenId: 'id' })).toBe(true)
    expect(covered({ tokenId: 'other' })).toBe(false)
    expect(covered({ runtime: 'demo', issuedBefore: 100 })).toBe(false)
    expect(covered({ runtime: 'demo', issuedBefore: 101 })).toBe(true)
    expect(() => covered({ until: 5 })).toThrow(TypeError)
  })

  test('are bounded, and those whose time is over are forgotten', () => {
    let now = 0
    const revocations = new Revocations(() => now)
    for (let i = 0; i < 10_000; i++) revocations.add({ tokenId: `${i}`, until: 5 })
    expect(() => revocations.add({ runtime: 'x' })).toThrow(RangeError)
    now = 6000
    revocations.add({ runtime: 'x' })
    expect(revocations.list).toEqual([{ runtime: 'x' }])
  })
})

test('a listener that throws harms nobody', () => {
  const errors: string[] = []
  const events = new Events<{ a: number }>({ ...noLogger, error: (_fields, message) => errors.push(message) })
  const seen: number[] = []
  events.on('a', () => {
    throw new Error('mine')
  })
  const listener = (value: number) => seen.push(value)
  events.on('a', listener)
  events.emit('a', 1)
  events.off('a', listener)
  events.emit('a', 2)
  expect(seen).toEqual([1])
  expect(errors).toEqual(['a listener of "a" threw', 'a listener of "a" threw'])
})
