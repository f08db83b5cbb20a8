import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ProtocolError } from '../../../protocol/base/protocol-error.ts'
import {
  type ControlMessage,
  commonFeatures,
  INBOX_LIMITS,
  MAX_CONTROL_BYTES,
  parseControl,
} from '../../../protocol/wire/control.ts'

const samples: ControlMessage[] = [
  {
    type: 'hello',
    minor: 0,
    software: 'sallyport/0.1.0',
    instance: 'i-1',
    startedMs: 1_800_000_000_000,
    lastEpoch: 0,
    connection: 1,
    limits: { windowBytes: 65_536, streams: 1_000 },
    features: ['a', 'b'],
    cors: [{ path: '/app-proxy', origins: ['https://ui.example.com'], credentials: true, maxAge: 600 }],
    allowCallers: [],
    inbox: [{ route: 'hooks', path: '/webhooks/{name}', methods: ['POST'], mode: 'fallback', maxAgeMs: 3_600_000 }],
  },
  {
    type: 'welcome',
    minor: 1,
    software: 'x',
    session: 's1',
    replica: 'r1',
    runtime: 'rt',
    epoch: 4,
    features: ['a'],
  },
  { type: 'ready' },
  { type: 'ready', epoch: 5, active: true },
  { type: 'reauth', token: 'a.b.c' },
  { type: 'reauth-ok', expiresMs: 1 },
  { type: 'reauth-refused' },
  { type: 'drain', reason: 'shutdown', afterMs: 0, deadlineMs: 30_000 },
  { type: 'drained', lastStream: 0 },
  { type: 'reset', stream: 2, code: 'timeout' },
  { type: 'notice', message: 'the token ends soon' },
  {
    type: 'spans',
    requests: [
      {
        of: 'b7ad6b7169203331',
        spans: [
          {
            ...{ id: '00f067aa0ba902b7', parent: 'b7ad6b7169203331', name: 'GET', kind: 'server', at: 0, took: 1500 },
            ...{
              attributes: { 'http.response.status_code': 200, 'http.route': '/x', 'sallyport.cut': true },
              failed: true,
            },
          },
        ],
      },
    ],
  },
  { type: 'check', id: 0 },
  {
    type: 'checked',
    id: 7,
    targets: [
      { route: 'api', ms: 3 },
      { route: 'b', ms: 0, code: 'upstream-name' },
    ],
    more: 2,
  },
  { type: 'bye' },
]

describe('control messages', () => {
  test.each(samples.map(sample => [sample.type, sample] as const))('%s', (_, sample) => {
    expect(parseControl(JSON.stringify(sample))).toEqual(sample)
  })

  test('unknown types and members are ignored and counted', () => {
    const unknown = { types: 0, members: 0 }
    expect(parseControl('{"type":"dance","stream":1}', unknown)).toBeUndefined()
    expect(parseControl('{"type":"bye","reason":"x","later":{},"__proto__":{"polluted":1}}', unknown)).toEqual({
      type: 'bye',
      reason: 'x',
    })
    expect(parseControl('{"type":"constructor"}', unknown)).toBeUndefined()
    expect(parseControl('{"type":"__proto__"}', unknown)).toBeUndefined()
    expect(unknown).toEqual({ types: 3, members: 2 })
  })

  test.each([
    ['x', 'is not JSON'],
    ['', 'is not JSON'],
    ['null', 'is not an object'],
    ['[]', 'is not an object'],
    ['"hello"', 'is not an object'],
    ['{}', 'without a type'],
    ['{"type":1}', 'without a type'],
    ['{"type":"drained"}', 'drained without lastStream'],
    ['{"type":"drained","lastStream":-1}', 'drained: malformed lastStream'],
    ['{"type":"drained","lastStream":1.5}', 'drained: malformed lastStream'],
    ['{"type":"drained","lastStream":"2"}', 'drained: malformed lastStream'],
    ['{"type":"drained","lastStream":null}', 'drained: malformed lastStream'],
    ['{"type":"drained","lastStream":4294967296}', 'drained: malformed lastStream'],
    ['{"type":"reset","stream":0,"code":"limit"}', 'reset: malformed stream'],
    ['{"type":"reauth","token":""}', 'reauth: malformed token'],
    ['{"type":"reauth","token":"a b"}', 'reauth: malformed token'],
    ['{"type":"drain","reason":"x\\n","afterMs":0,"deadlineMs":0}', 'drain: malformed reason'],
    ['{"type":"drain","reason":"x","afterMs":0,"deadlineMs":1e12}', 'drain: malformed deadlineMs'],
    ['{"type":"ready","active":1}', 'ready: malformed active'],
    ['{"type":"bye","reason":{}}', 'bye: malformed reason'],
  ])('refuses %s', (message, reason) => {
    expect(() => parseControl(message)).toThrow(ProtocolError)
    expect(() => parseControl(message)).toThrow(reason)
  })

  test('every member of every message is checked', () => {
    for (const sample of samples) {
      for (const name of Object.keys(sample)) {
        if (name === 'type') continue
        const bad = { ...sample, [name]: { not: 'this' } }
        if (name === 'limits') continue
        expect(() => parseControl(JSON.stringify(bad)), `${sample.type} ${name}`).toThrow(ProtocolError)
      }
    }
  })

  test('members of members are checked, too, and unknown ones pass', () => {
    const hello = samples[0] as object
    const withRule = (rule: object) => JSON.stringify({ ...hello, cors: [rule] })
    expect(() => parseControl(withRule({ path: 'app', origins: [] }))).toThrow(ProtocolError)
    expect(() => parseControl(withRule({ path: '/app', origins: ['a b'] }))).toThrow(ProtocolError)
    expect(parseControl(withRule({ path: '/app', origins: [], later: 1 }))?.type).toBe('hello')
    expect(() => parseControl(JSON.stringify({ ...hello, limits: { windowBytes: 1 } }))).toThrow(ProtocolError)
    expect(() => parseControl(JSON.stringify({ ...hello, features: Array(65).fill('a') }))).toThrow(ProtocolError)
  })

  test("an inbox's rules", () => {
    const rule = { route: 'hooks', path: '/hooks', mode: 'always' }
    const withRule = (more: object) => () =>
      parseControl(JSON.stringify({ ...samples[0], inbox: [{ ...rule, ...more }] }))
    const verify = { scheme: 'github', secrets: ['c2VjcmV0'] }
    const good = {
      hosts: ['a.example'],
      answerWithinMs: 60_000,
      maxAgeMs: 2_592_000_000,
      lane: 'none',
      guarded: true,
      timestamps: true,
      signature: 'x-sig',
    }
    expect(withRule({ ...good, verify })).not.toThrow()
    expect(withRule({ verify: { ...verify, toleranceMs: 1, header: 'a', prefix: '', hash: 'sha512' } })).not.toThrow()
    for (const bad of [
      ...[
        { mode: 'some' },
        { path: 'hooks' },
        { route: '' },
        { lane: 'all' },
        { maxAgeMs: 999 },
        { answerWithinMs: 0 },
      ],
      ...[
        { maxAgeMs: 2_592_000_001 },
        { answerWithinMs: 60_001 },
        { methods: 'POST' },
        { guarded: 1 },
        { timestamps: 1 },
        { signature: '' },
        { hosts: [''] },
      ],
      ...[
        { verify: { ...verify, secrets: ['!'] } },
        { verify: { ...verify, secrets: Array(INBOX_LIMITS.secrets + 1).fill('YQ==') } },
      ],
      ...[{ verify: { secrets: [] } }, { verify: { ...verify, hash: 'md5' } }],
    ]) {
      expect(withRule(bad), JSON.stringify(bad)).toThrow(ProtocolError)
    }
  })

  test('a message is at most 16 KiB, in bytes', () => {
    const long = (character: string, count: number) => JSON.stringify({ type: 'later', x: character.repeat(count) })
    expect(parseControl(long('a', MAX_CONTROL_BYTES - 100))).toBeUndefined()
    expect(() => parseControl(long('a', MAX_CONTROL_BYTES))).toThrow(ProtocolError)
    expect(() => parseControl(long('\u20ac', MAX_CONTROL_BYTES / 2))).toThrow(ProtocolError)
  })

  test('any JSON parses or gives a ProtocolError', () => {
    const type = fc.constantFrom(...samples.map(sample => sample.type))
    fc.assert(
      fc.property(type, fc.dictionary(fc.string(), fc.jsonValue()), (name, members) => {
        try {
          parseControl(JSON.stringify({ ...members, type: name }))
        } catch (error) {
          expect(error).toBeInstanceOf(ProtocolError)
        }
      }),
    )
  })

  test('features are those that both have', () => {
    expect(commonFeatures(['b', 'x', 'b'], ['a', 'b'])).toEqual(['b'])
    expect(commonFeatures(undefined, ['a'])).toEqual([])
  })
})
