/** The rules of many runtimes, more than a server remembers. */
import { generateKeyPairSync } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import type { InboxRule } from '../../../protocol/wire/control.ts'
import { AnnouncedRules } from '../../../server/inbox/announced-rules.ts'
import type { InboxStore } from '../../../server/inbox/store.ts'
import { EXCHANGE } from '../../support/ends.ts'

const MAX_RUNTIMES = 10
const DAY_MS = 86_400_000
const RULE: InboxRule = { route: 'r', path: '/hooks', methods: ['POST'], mode: 'fallback' }
const SECRETS = [Buffer.alloc(32, 's').toString('base64')]
const KEY = generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' }).x!

function make(logger: Logger = noLogger) {
  const clock = { now: DAY_MS }
  const store = { apply: async () => ({ status: 'done', id: '' }), stats: () => ({ open: true }) }
  const rules = new AnnouncedRules({
    ...{ store: store as unknown as InboxStore, mac: undefined, maxAgeMs: 1e9, plaintext: true, logger },
    ...{ maxRuntimes: MAX_RUNTIMES, now: () => clock.now, isLive: () => true, isHere: () => true },
  })
  const find = (runtime: string) => rules.find({ ...EXCHANGE, method: 'POST', path: '/hooks', headers: [], runtime })
  const publish = async (...runtimes: string[]) => {
    for (const runtime of runtimes) rules.publish(runtime, [RULE], KEY)
    await setImmediate()
  }
  return { rules, clock, find, publish }
}

const rowOf = (runtime: string, seen: number, key = KEY) => ({
  ...{ runtime, seen },
  rules: JSON.stringify({ key, shared: false, rules: [RULE] }),
})
const names = (count: number, from = 0) => Array.from({ length: count }, (_, i) => `${from + i}`)

test('a client that is connected keeps its rules and their secrets, however many others there are', async () => {
  const lines: string[] = []
  const { rules, clock, find } = make({ ...noLogger, warn: (_fields, message) => lines.push(message) })
  rules.publish('here', [{ ...RULE, verify: { scheme: 'github', secrets: SECRETS } }], KEY)
  await setImmediate()
  const stored = [...names(3 * MAX_RUNTIMES).map((name, i) => rowOf(name, i)), rowOf('here', clock.now)]
  for (let i = 0; i < 3; i++) {
    rules.adopt(stored)
    expect(find('here')?.rule.verifier).toBeDefined()
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

test('a stored key is checked when a webhook comes, since that takes long', () => {
  const errors: string[] = []
  const { rules, find } = make({ ...noLogger, error: (_fields, message) => errors.push(message) })
  rules.adopt([rowOf('demo', DAY_MS, Buffer.alloc(32).toString('base64url'))])
  expect(errors).toEqual([])
  expect(find('demo')).toBeUndefined()
  expect(errors).toEqual(['the stored rules of a runtime cannot be read'])
})

test.each([
  ['the store', undefined, true],
  ['the same instance', 'a', true],
  ['another instance', 'b', false],
])(
  'while it is not known which instance is active, secrets are taken beside those of %s: %s',
  (_, instance, expected) => {
    const { rules } = make()
    const announce = (by: { instance?: string; active?: string }) =>
      rules.publish('demo', [{ ...RULE, verify: { scheme: 'github', secrets: SECRETS } }], KEY, false, [], by)
    if (instance === undefined) rules.adopt([rowOf('demo', 1)])
    else announce({ instance })
    expect(announce({ instance: 'a', active: '' })).toBe(expected)
  },
)

test('rules that differ are ignored while it is not known which instance is active', () => {
  const { rules } = make()
  expect(rules.publish('demo', [RULE], KEY, false, [], { instance: 'a' })).toBe(true)
  expect(rules.publish('demo', [], KEY, false, [], { instance: 'a', active: '' })).toBe(false)
})
