/** The rules of many runtimes, more than a server remembers. */
import { generateKeyPairSync } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { describe, expect, test } from 'vitest'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import type { InboxRule } from '../../../protocol/wire/control.ts'
import { AnnouncedRules } from '../../../server/inbox/announced-rules.ts'
import { type InboxStore, StoreError } from '../../../server/inbox/store.ts'
import { EXCHANGE } from '../../support/ends.ts'

const MAX_RUNTIMES = 10
const DAY_MS = 86_400_000
const RULE: InboxRule = { route: 'r', path: '/hooks', methods: ['POST'], mode: 'fallback' }
const KEY = generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' }).x!

function make(logger: Logger = noLogger) {
  const clock = { now: DAY_MS }
  /** What the directory says about what was announced here. */
  const directory = { overtaken: false as boolean | 'unknown', asked: 0 }
  const stored = new Map<string, { readonly rules: string; readonly seen: number }>()
  const store = {
    away: false,
    apply: async ({ runtime, rules, at }: { runtime: string; rules: string; at: number }) => {
      if (store.away) throw new StoreError('away', 'away')
      stored.set(runtime, { rules, seen: at })
      return { status: 'done', id: '' }
    },
    stats: () => ({ open: !store.away }),
    shared: { reload: () => rules.adopt(rowsOf()) },
  }
  const rules: AnnouncedRules = new AnnouncedRules({
    ...{ store: store as unknown as InboxStore, mac: undefined, maxAgeMs: 1e9, plaintext: true, logger },
    ...{ maxRuntimes: MAX_RUNTIMES, now: () => clock.now, since: () => 0, isLive: () => true, isHere: () => true },
    isOvertaken: () => directory.overtaken,
    look: () => directory.asked++,
  })
  const find = (runtime: string, ownHost?: string) =>
    rules.find({ ...EXCHANGE, method: 'POST', path: '/hooks', headers: [], runtime, ownHost })
  const publish = async (...runtimes: string[]) => {
    for (const runtime of runtimes) rules.publish(runtime, [RULE], KEY)
    await setImmediate()
  }
  /** As an instance with this secret announces it, or without one that it has no rules. True if the rules apply. */
  const announce = async (secret: string | undefined, by: { instance?: string; active?: string } = {}) => {
    const verified = (text: string) => ({ scheme: 'github' as const, secrets: [Buffer.from(text).toString('base64')] })
    const announced = secret === undefined ? [] : [{ ...RULE, verify: verified(secret) }]
    const applied = rules.publish('demo', announced, KEY, false, [], by)
    await setImmediate()
    return applied
  }
  /** What it has stored, as other servers read it. */
  const rowsOf = () => [...stored].map(([runtime, row]) => ({ runtime, ...row }))
  return { rules, clock, directory, store, find, publish, announce, rowsOf }
}

const rowOf = (runtime: string, seen: number, key = KEY) => ({
  ...{ runtime, seen },
  rules: JSON.stringify({ key, shared: false, rules: [RULE] }),
})
const names = (count: number, from = 0) => Array.from({ length: count }, (_, i) => `${from + i}`)

test('a client that is connected keeps its rules and their secrets, however many others there are', async () => {
  const lines: string[] = []
  const { rules, find, announce, rowsOf } = make({ ...noLogger, warn: (_fields, message) => lines.push(message) })
  await announce('a secret')
  const stored = [...names(3 * MAX_RUNTIMES).map((name, i) => rowOf(name, i)), ...rowsOf()]
  for (let i = 0; i < 3; i++) {
    rules.adopt(stored)
    expect(find('demo')?.rule.verifier).toBeDefined()
    const found = stored.filter(({ runtime }) => find(runtime) !== undefined)
    expect(found).toEqual(stored.slice(-MAX_RUNTIMES))
  }
  expect(lines).toEqual(Array(3).fill(expect.stringContaining('the rules of too many runtimes')))
})

test('those of the runtimes that were away longest are forgotten, not those that announced theirs long ago', async () => {
  const { rules, clock, find, publish } = make()
  await publish('here', ...names(MAX_RUNTIMES - 2))
  clock.now += DAY_MS / 2
  await publish('later')
  clock.now += DAY_MS / 2
  rules.refresh()
  await setImmediate()
  await publish('last')
  expect(find('later')).toBeUndefined()
  expect(find('here')).toBeDefined()
})

test.each<[what: string, row: ReturnType<typeof rowOf>, ownHost?: string]>([
  ['a key', rowOf('demo', DAY_MS, Buffer.alloc(32).toString('base64url'))],
  ['a rule', { runtime: 'demo', seen: DAY_MS, rules: JSON.stringify({ key: KEY, rules: [{ ...RULE, path: 1 }] }) }],
  [
    'a host',
    { runtime: 'demo', seen: DAY_MS, rules: JSON.stringify({ key: KEY, rules: [RULE], hosts: 1 }) },
    'demo.example.com',
  ],
])(
  '%s from the store is made usable when a webhook comes, since that takes long and much memory',
  async (_, row, ownHost) => {
    for (const isAnnounced of [false, true]) {
      const errors: string[] = []
      const { rules, find, announce } = make({ ...noLogger, error: (_fields, message) => errors.push(message) })
      if (isAnnounced) await announce('a secret')
      rules.adopt([row])
      expect(errors).toEqual([])
      expect(find('demo', ownHost)).toBeUndefined()
      expect(errors).toEqual(['the stored rules of a runtime cannot be read'])
    }
  },
)

describe('servers that share a store', () => {
  /** Two servers, of which the other one reads what the first stores. */
  function two() {
    const [here, there] = [make(), make()]
    return { here, there, tell: () => there.rules.adopt(here.rowsOf()) }
  }
  const secretsAt = ({ find }: ReturnType<typeof make>) => find('demo')!.rule.verifier !== undefined

  test.each([
    ['with the same id, after a reload', 'a'],
    ['with another id, after a restart', 'b'],
  ])('those that do not hear of new secrets of a client %s drop the old ones', async (_, instance) => {
    const { here, there, tell } = two()
    await here.announce('old', { instance: 'a' })
    await there.announce('old', { instance: 'a' })
    tell()
    expect(secretsAt(there)).toBe(true)
    await here.announce('new', { instance })
    tell()
    expect(secretsAt(there)).toBe(false)
    await there.announce('new', { instance })
    tell()
    expect([secretsAt(here), secretsAt(there)]).toEqual([true, true])
  })

  test('one whose secrets are those of the stored rules keeps them, whoever has written these', async () => {
    const { here, there, tell } = two()
    await here.announce('old', { instance: 'a' })
    await there.announce('old', { instance: 'a' })
    here.rules.renewed('demo', ['shop.example.com'])
    await setImmediate()
    tell()
    expect(secretsAt(there)).toBe(true)
    await here.announce('new', { instance: 'b' })
    tell()
    await here.announce('old', { instance: 'a' })
    tell()
    expect(secretsAt(there)).toBe(true)
  })

  test.each([
    ['earlier than', -1, true],
    ['at the time of', 0, false],
    ['later than', 1, false],
  ])(
    'rules that were announced %s those in the store give way to them, if they could not be written',
    async (...example) => {
      const [, afterMs, giveWay] = example
      const { here, there, tell } = two()
      await here.announce('stored', { instance: 'a' })
      there.store.away = true
      there.clock.now += afterMs
      await there.announce('unwritten', { instance: 'b' })
      there.store.away = false
      there.clock.now += 1000
      tell()
      there.rules.saveMissing()
      await setImmediate()
      const written = giveWay ? [] : [expect.objectContaining({ seen: DAY_MS + afterMs })]
      expect([secretsAt(there), there.rowsOf()]).toEqual([!giveWay, written])
    },
  )

  test('a server knows that those of another instance replaced the rules that one announced there, until it announces them again', async () => {
    const { here, there, tell } = two()
    const isReplaced = () => ['a', 'b'].map(instance => there.rules.isReplaced('demo', instance, [RULE], KEY))
    await there.announce('a secret', { instance: 'a' })
    for (const [secret, instance, expected] of [
      ['a secret', 'a', [false, false]],
      ['a newer one', 'a', [false, false]],
      ['another one', 'b', [true, false]],
    ] as const) {
      await here.announce(secret, { instance })
      tell()
      expect(isReplaced()).toEqual(expected)
    }
    await there.announce('a secret', { instance: 'a' })
    expect(isReplaced()).toEqual([false, false])
  })

  test('rules that another instance withdraws too late are announced again', async () => {
    const { here, there, tell } = two()
    await here.announce('a secret', { instance: 'b' })
    await there.announce('a secret', { instance: 'a' })
    await here.announce(undefined, { instance: 'b' })
    tell()
    expect(there.find('demo')).toBeUndefined()
    expect(there.rules.isReplaced('demo', 'a', [RULE], KEY)).toBe(true)
    await there.announce('a secret', { instance: 'a' })
    expect(secretsAt(there)).toBe(true)
    expect(there.rules.isReplaced('demo', 'a', [RULE], KEY)).toBe(false)
  })

  test('rules that could not be written give way to a later instance that has withdrawn its own and left', async () => {
    const { here, there, tell } = two()
    there.store.away = true
    await there.announce('unwritten', { instance: 'a' })
    here.clock.now++
    await here.announce('a secret', { instance: 'b' })
    await here.announce(undefined, { instance: 'b' })
    there.store.away = false
    there.clock.now += 1000
    tell()
    there.rules.saveMissing()
    await setImmediate()
    expect([there.find('demo'), there.rowsOf()]).toEqual([undefined, []])
  })

  test('nothing is withdrawn of which the store has nothing', async () => {
    const { rules, store, find, announce, rowsOf } = make()
    await announce(undefined, { instance: 'a' })
    store.away = true
    await announce(undefined, { instance: 'a' })
    store.away = false
    rules.adopt([])
    rules.saveMissing()
    await setImmediate()
    expect([find('demo'), rowsOf()]).toEqual([undefined, []])
  })

  test.each([
    ['has none', 'a', true, [], undefined],
    ['has none', 'b', false, [], undefined],
    ['has some and an invalid key', 'b', false, [RULE], 'invalid'],
    ['has some that it announced elsewhere', 'b', true, [RULE], KEY],
  ])('if instance a %s, rules by %s stay: %o', async (_, instance, stay, announced, key) => {
    const { here, there, tell } = two()
    const isReplaced = () => there.rules.isReplaced('demo', 'a', announced, key)
    expect(isReplaced()).toBe(false)
    await here.announce('a secret', { instance })
    tell()
    expect(isReplaced()).toBe(!stay)
  })

  /** The store has rules, and could not be reached when instance `a` announced others, or none. It is back. */
  async function announcedWhileAway(secret: string | undefined) {
    const made = make()
    await made.publish('demo')
    const before = made.rowsOf()
    made.store.away = true
    made.clock.now++
    await made.announce(secret, { instance: 'a' })
    made.store.away = false
    return { ...made, before }
  }

  test.each([
    [false, true],
    [true, false],
    ['unknown' as const, false],
  ])('what was announced while the store was away is written later unless it was overtaken: %s', async (...example) => {
    const [overtaken, written] = example
    for (const secret of ['a secret', undefined]) {
      const { rules, directory, find, rowsOf, before } = await announcedWhileAway(secret)
      directory.overtaken = overtaken
      rules.adopt(before)
      rules.saveMissing()
      await setImmediate()
      expect(isDeepStrictEqual(rowsOf(), before)).toBe(!written)
      expect(directory.asked).toBe(overtaken === 'unknown' ? 1 : 0)
      const found = overtaken === true ? ['stored'] : secret === undefined ? [] : ['announced']
      const { rule } = find('demo') ?? {}
      expect(rule === undefined ? [] : [rule.verifier === undefined ? 'stored' : 'announced']).toEqual(found)
    }
  })

  test.each([
    ['those of the instance whose rules are stored', 'a', 'same', true],
    ['other ones of it', 'a', 'other', false],
    ['those of another instance', 'b', 'same', false],
  ])('while it is not known which instance is active, a server takes only its secrets: %s', async (...example) => {
    const [, instance, secret, expected] = example
    const { here, there, tell } = two()
    await here.announce('same', { instance: 'a' })
    tell()
    expect(await there.announce(secret, { instance, active: '' })).toBe(expected)
    expect(secretsAt(there)).toBe(expected)
  })

  test.each([
    ['rules', 'a secret'],
    ['that there are none', undefined],
  ])('what could not be written gives way once it is known that it has been overtaken: %s', async (_, secret) => {
    const { rules, directory, find, rowsOf, before } = await announcedWhileAway(secret)
    directory.overtaken = 'unknown'
    rules.adopt(before)
    directory.overtaken = true
    rules.saveMissing()
    await setImmediate()
    expect(rowsOf()).toEqual(before)
    expect(find('demo')!.rule.verifier).toBeUndefined()
  })

  test('the store holds nothing by which a secret could be guessed', async () => {
    const [one, other] = [make(), make()]
    await one.announce('guess me', { instance: 'a' })
    await other.announce('guess me', { instance: 'b' })
    const [text] = one.rowsOf()
    expect(text!.rules).not.toContain(Buffer.from('guess me').toString('base64'))
    expect(text!.rules).not.toBe(other.rowsOf()[0]!.rules)
  })
})

test('rules that differ are ignored while it is not known which instance is active', () => {
  const { rules } = make()
  expect(rules.publish('demo', [RULE], KEY, false, [], { instance: 'a' })).toBe(true)
  expect(rules.publish('demo', [], KEY, false, [], { instance: 'a', active: '' })).toBe(false)
})
