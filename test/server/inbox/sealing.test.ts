/** How many webhooks share a key agreement with their client, and for how long. */
import { describe, expect, test } from 'vitest'
import { newPrivateKey, openWith, publicBytes } from '../../../protocol/sealing/hpke.ts'
import { OpeningKey, partAad, Sealers, sealerFor } from '../../../protocol/sealing/sealed-webhook.ts'
import { ClientSealer } from '../../../server/inbox/sealing.ts'

const KEY = newPrivateKey()
const PUBLIC = publicBytes(KEY)
const identity = (id: string) => ({ runtime: 'demo', id, lane: 'l', received: 1 })

/** What opens each of this many webhooks, one every `everyMs`. */
function sealed(count: number, everyMs: number): string[] {
  let now = 0
  const sealer = new ClientSealer(PUBLIC, true, () => now)
  return Array.from({ length: count }, (_, i) => {
    now += everyMs
    return sealer.seal(identity(String(i))).enc
  })
}

const agreements = (encs: readonly string[]): number[] => {
  const counts = new Map<string, number>()
  for (const enc of encs) {
    const [point = ''] = enc.split('.')
    counts.set(point, (counts.get(point) ?? 0) + 1)
  }
  return [...counts.values()]
}

test('the more arrive per second, the more share one, up to 64, and no two have the same key', () => {
  const encs = sealed(255, 0)
  expect(agreements(encs)).toEqual([1, 2, 4, 8, 16, 32, 64, 64, 64])
  expect(new Set(encs).size).toBe(encs.length)
})

test('rare ones have one each, and none is used for longer than a second', () => {
  expect(agreements(sealed(4, 1000))).toEqual([1, 1, 1, 1])
  expect(Math.max(...agreements(sealed(100, 100)))).toBeLessThanOrEqual(10)
})

test('each opens under its own number only, with its parts in any order', () => {
  const sealer = new ClientSealer(PUBLIC, true)
  const webhooks = ['a', 'b', 'c', 'd', 'e'].map(id => ({ id, sealing: sealer.seal(identity(id)) }))
  for (const { id, sealing } of webhooks) {
    const parts = [0, 1, 2].map(n => sealing.part(n, Buffer.from(`${id} ${n}`)))
    for (const n of [2, 0, 1]) {
      const opened = new OpeningKey(KEY).opener(sealing.enc).open(n, partAad(identity(id), n), parts[n]!)
      expect(Buffer.from(opened).toString()).toBe(`${id} ${n}`)
    }
    for (const other of webhooks) {
      if (other.id === id) continue
      const opener = new OpeningKey(KEY).opener(other.sealing.enc)
      expect(() => opener.open(0, partAad(identity(id), 0), parts[0]!)).toThrow()
    }
  }
})

describe('opening', () => {
  /** A key, and the number of its agreements. */
  const counting = () => {
    const agreed: string[] = []
    const key = new OpeningKey(KEY, (privateKey, enc, info) => {
      agreed.push(Buffer.from(enc).toString('base64url'))
      return openWith(privateKey, enc, info)
    })
    const opens = ({ enc, seal }: ReturnType<typeof sealerFor>) => {
      const opened = key.opener(enc).open(1, Buffer.from('aad'), seal(1, Buffer.from('aad'), Buffer.from(enc)))
      expect(Buffer.from(opened).toString()).toBe(enc)
    }
    return { agreed, opens }
  }

  test('agrees once for all that share an agreement, in any order, and each time for the first form', () => {
    const { agreed, opens } = counting()
    const [one, other] = [new Sealers(PUBLIC, 8), new Sealers(PUBLIC, 8)]
    const shared = Array.from({ length: 8 }, () => [one.take()!, other.take()!]).flat()
    for (const sealer of [...shared].reverse()) opens(sealer)
    expect(agreed).toHaveLength(2)
    const alone = sealerFor(PUBLIC)
    for (let i = 0; i < 3; i++) opens(alone)
    expect(agreed).toHaveLength(5)
  })

  test('remembers the last 64 agreements', () => {
    const { agreed, opens } = counting()
    const sealers = Array.from({ length: 65 }, () => new Sealers(PUBLIC, 3))
    for (const each of sealers) opens(each.take()!)
    expect(agreed).toHaveLength(65)
    for (const each of sealers.slice(1)) opens(each.take()!)
    expect(agreed).toHaveLength(65)
    opens(sealers[0]!.take()!)
    expect(agreed.at(-1)).toBe(agreed[0])
    expect(agreed).toHaveLength(66)
  })

  test('remembers no failed agreement', () => {
    const { agreed, opens } = counting()
    const { enc, seal } = new Sealers(PUBLIC, 1).take()!
    const small = { enc: enc.replace(/^[\w-]{43}/, 'A'.repeat(43)), seal }
    for (let i = 0; i < 2; i++) expect(() => opens(small)).toThrow()
    expect(agreed).toHaveLength(2)
  })
})

test('for a client that opens only the first form, each has its own agreement', () => {
  const sealer = new ClientSealer(PUBLIC, false)
  const encs = [1, 2, 3].map(id => sealer.seal(identity(String(id))).enc)
  expect(encs.every(enc => /^[\w-]{43}$/.test(enc))).toBe(true)
  expect(new Set(encs).size).toBe(3)
})

test('an invalid key is refused before anything is sealed', () => {
  expect(() => new ClientSealer(Buffer.alloc(32), true)).toThrow()
  expect(() => new ClientSealer(Buffer.alloc(31), true)).toThrow()
})
