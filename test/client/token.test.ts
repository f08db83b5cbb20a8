import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { readOwnClaims } from '../../client/claims.ts'
import { TokenKeeper, type TokenSource } from '../../client/token.ts'
import { noLogger } from '../../protocol/base/log.ts'

const START_MS = Date.parse('2026-11-21T12:00:00Z')

function jwt(fromS: number, lifeS: number, sub = 'prod'): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'EdDSA' })}.${part({ sub, iat: fromS, exp: fromS + lifeS })}.c2ln`
}

const fresh = (lifeS = 300) => jwt(Math.floor(Date.now() / 1000), lifeS)

function keep(source: TokenSource) {
  const sent: string[] = []
  const warnings: string[] = []
  const logger = { ...noLogger, warn: (_fields: object, message: string) => void warnings.push(message) }
  const keeper = new TokenKeeper({ source, onFresh: token => sent.push(token), logger })
  return { keeper, sent, warnings }
}

describe('TokenKeeper', () => {
  beforeEach(() => {
    vi.useFakeTimers({ now: START_MS })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it('calls the source again when a third of the lifetime is left, and announces the new token', async () => {
    const source = vi.fn(async () => fresh(300))
    const { keeper, sent, warnings } = keep(source)
    const first = await keeper.get()
    expect(await keeper.get()).toBe(first)
    await vi.advanceTimersByTimeAsync(199_000)
    expect(source).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(2000)
    expect(source).toHaveBeenCalledTimes(2)
    expect(sent).toEqual([await keeper.get()])
    expect(sent[0]).not.toBe(first)
    expect(warnings).toEqual([])
    keeper.close()
  })

  it.each([
    ['its last third', 250_000],
    ['the time after its expiry', 3_600_000],
  ])(
    'calls the source at once if the machine has slept until %s, although the timer is not due',
    async (_name, sleptMs) => {
      const source = vi.fn(async () => fresh(300))
      const { keeper, sent } = keep(source)
      await keeper.get()
      keeper.look()
      expect(source).toHaveBeenCalledTimes(1)
      vi.setSystemTime(START_MS + sleptMs)
      keeper.look()
      await vi.advanceTimersByTimeAsync(0)
      expect(source).toHaveBeenCalledTimes(2)
      expect(sent).toHaveLength(1)
      keeper.close()
      keeper.look()
      expect(source).toHaveBeenCalledTimes(2)
    },
  )

  it.each([
    ["to the server's time", 3_600_000],
    ['to a time that nobody else has', 0],
  ])('calls the source in time if the clock is set back %s', async (_name, aheadMs) => {
    const source = vi.fn(async () => jwt(Math.floor(START_MS / 1000), 300))
    vi.setSystemTime(START_MS + aheadMs)
    const { keeper } = keep(source)
    keeper.serverTime(START_MS)
    await keeper.get()
    vi.setSystemTime(START_MS + aheadMs - 3_600_000)
    keeper.setBack(3_600_000)
    await vi.advanceTimersByTimeAsync(199_000)
    expect(source).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(2000)
    expect(source).toHaveBeenCalledTimes(2)
    keeper.close()
  })

  it('is offered again if it was refused and the source has no other', async () => {
    const token = fresh(300)
    const { keeper, sent } = keep(async () => token)
    await keeper.get()
    keeper.refused(token)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(sent).toEqual([token])
    await vi.advanceTimersByTimeAsync(60_000)
    expect(sent).toEqual([token])
    keeper.refused(token)
    keeper.set(token)
    expect(sent).toEqual([token, token])
    keeper.set(token)
    expect(sent).toHaveLength(2)
    keeper.close()
  })

  it('renews for hours without a gap', async () => {
    const { keeper, sent } = keep(async () => fresh(20))
    await keeper.get()
    let ended = 0
    for (let s = 0; s < 600; s++) {
      await vi.advanceTimersByTimeAsync(1000)
      if ((keeper.expiresMs ?? 0) <= Date.now()) ended++
    }
    expect(ended).toBe(0)
    expect(sent.length).toBeGreaterThan(40)
    keeper.close()
  })

  it('warns once when a quarter is left and no fresh one has arrived', async () => {
    const token = fresh(400)
    const { keeper, warnings } = keep(token)
    await keeper.get()
    await vi.advanceTimersByTimeAsync(299_000)
    expect(warnings).toEqual([])
    await vi.advanceTimersByTimeAsync(2000)
    expect(warnings).toEqual(['the token expires in 1 min 40 s and was not renewed'])
    await vi.advanceTimersByTimeAsync(600_000)
    expect(warnings).toHaveLength(1)
    keeper.close()
  })

  it('asks again, more often as the end approaches, while the source fails', async () => {
    const first = fresh(300)
    const source = vi.fn(async () => {
      if (source.mock.calls.length === 1) return first
      throw new Error('no such file')
    })
    const { keeper, warnings } = keep(source)
    await keeper.get()
    await vi.advanceTimersByTimeAsync(290_000)
    const calls = source.mock.calls.length
    expect(calls).toBeGreaterThan(10)
    expect(calls).toBeLessThan(60)
    expect(warnings).toContain('could not get a fresh token')
    expect(await keeper.get()).toBe(first)
    keeper.close()
  })

  const FAILED = 'no such file'
  const LATE = 'the token source did not answer within 10 s'
  /** What a dial gets, and after how many seconds. */
  it.each([
    ['fails', 'is fresh', 100_000, 'the same', 0],
    ['fails', 'is in its last third', 250_000, 'the same', 0],
    ['fails', 'was refused', 250_000, FAILED, 0],
    ['fails', 'has expired', 300_000, FAILED, 0],
    ['is late', 'is fresh', 100_000, 'the same', 0],
    ['is late', 'is in its last third', 250_000, 'the same', 1],
    ['is late', 'was refused', 100_000, LATE, 10],
    ['is late', 'has expired', 300_000, LATE, 10],
    ['answers', 'is fresh', 100_000, 'the same', 0],
    ['answers', 'is in its last third', 250_000, 'another', 0],
    ['answers', 'was refused', 100_000, 'another', 0],
    ['answers', 'has expired', 300_000, 'another', 0],
    ['is late', 'is about to expire', 299_500, LATE, 10],
    ['returns one that has expired', 'is in its last third', 250_000, 'the same', 0],
    ['returns one that has expired', 'was refused', 250_000, 'another', 0],
  ])('if the source %s and the token %s', async (source, token, atMs, outcome, waitedS) => {
    const first = fresh(300)
    const answers: Record<string, () => string | Promise<string>> = {
      fails: () => Promise.reject(new Error(FAILED)),
      'is late': () => new Promise(() => {}),
      answers: () => fresh(900),
      'returns one that has expired': () => jwt(START_MS / 1000 - 600, 300),
    }
    let ask: () => string | Promise<string> = () => first
    const { keeper } = keep(() => ask())
    await keeper.get()
    // Ours is an hour ahead of the server's, which decides.
    vi.setSystemTime(START_MS + 3_600_000)
    keeper.serverTime(START_MS)
    vi.setSystemTime(START_MS + 3_600_000 + atMs)
    ask = answers[source]!
    if (token === 'was refused') keeper.refused(first)
    const startMs = Date.now()
    let gotMs = 0
    const got = keeper.get().then(
      given => (given === first ? 'the same' : 'another'),
      (error: Error) => error.message,
    )
    void got.then(() => {
      gotMs = Date.now()
    })
    await vi.advanceTimersByTimeAsync(10_000)
    expect([await got, (gotMs - startMs) / 1000]).toEqual([outcome, waitedS])
    keeper.close()
  })

  it('does not hammer a source whose token has expired', async () => {
    const old = jwt(START_MS / 1000 - 600, 300)
    const source = vi.fn(async () => old)
    const { keeper } = keep(source)
    await keeper.get()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(source.mock.calls.length).toBeLessThan(5)
    keeper.close()
  })

  it('waits 10 s for the source', async () => {
    const { keeper } = keep(() => new Promise<string>(() => {}))
    const result = keeper.get().catch((error: Error) => error.message)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(await result).toBe('the token source did not answer within 10 s')
    keeper.close()
  })

  it('asks the source once for several waiting dials', async () => {
    const source = vi.fn(async () => fresh())
    const { keeper } = keep(source)
    await Promise.all([keeper.get(), keeper.get(), keeper.get()])
    expect(source).toHaveBeenCalledTimes(1)
    keeper.close()
  })

  it('never presents a refused token again if there is another', async () => {
    const tokens = [fresh(300), jwt(START_MS / 1000, 400)]
    const { keeper } = keep(async () => tokens.shift() ?? 'none')
    const first = await keeper.get()
    keeper.refused(first)
    expect(await keeper.get()).not.toBe(first)
    keeper.close()
  })

  it('tells the end of the token in force, whatever fresh ones the server refuses', async () => {
    const [old, bad, worse, good] = [100, 5000, 9000, 7000].map(lifeS => fresh(lifeS)) as [
      string,
      string,
      string,
      string,
    ]
    const { keeper } = keep(old)
    keeper.accepted(await keeper.get())
    // No server may be reachable.
    keeper.set(good)
    expect(keeper.inForceMs).toBe(START_MS + 7_000_000)
    for (const refused of [bad, worse]) {
      keeper.set(refused)
      keeper.refused(refused)
      // A dial that began before may end now.
      keeper.accepted(old)
      expect(keeper.inForceMs).toBe(START_MS + 100_000)
    }
    keeper.set(good)
    expect(keeper.inForceMs).toBe(START_MS + 100_000)
    keeper.accepted(good)
    expect(keeper.inForceMs).toBe(START_MS + 7_000_000)
    keeper.refused(good)
    expect(keeper.inForceMs).toBe(START_MS + 7_000_000)
    keeper.close()
  })

  it('asks again while the token in force lasts if what it got instead was refused and names no expiry', async () => {
    const [first, next] = [fresh(300), jwt(START_MS / 1000, 900)]
    const given = [first, '{"error":"unavailable"}']
    const { keeper, sent } = keep(async () => given.shift() ?? next)
    await keeper.get()
    await vi.advanceTimersByTimeAsync(201_000)
    expect(sent).toEqual(['{"error":"unavailable"}'])
    keeper.refused(sent[0]!)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(sent.slice(1)).toEqual([next])
    keeper.close()
  })

  it('keeps the current token when an earlier one is refused', async () => {
    const source = vi.fn(async () => fresh(300))
    const { keeper } = keep(source)
    const old = await keeper.get()
    const given = jwt(START_MS / 1000, 400)
    keeper.set(given)
    keeper.refused(old)
    expect(await keeper.get()).toBe(given)
    expect(source).toHaveBeenCalledTimes(1)
    keeper.refused(given)
    expect(await keeper.get()).not.toBe(given)
    keeper.close()
  })

  it("judges expiry by the server's clock", async () => {
    const source = vi.fn(async () => jwt(START_MS / 1000 + 240, 300))
    const { keeper } = keep(source)
    await keeper.get()
    keeper.serverTime(Date.now() + 240_000)
    await vi.advanceTimersByTimeAsync(199_000)
    expect(source).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(2000)
    expect(source.mock.calls.length).toBeGreaterThan(1)
    keeper.close()
  })

  it('accepts a token that is set by hand', async () => {
    const { keeper, sent } = keep(fresh())
    await keeper.get()
    const next = jwt(START_MS / 1000, 900)
    keeper.set(next)
    expect(sent).toEqual([next])
    expect(await keeper.get()).toBe(next)
    keeper.close()
  })

  it('asks the source again before a token that was set by hand expires', async () => {
    const source = vi.fn(async () => fresh(300))
    const { keeper, sent } = keep(source)
    await keeper.get()
    keeper.set(jwt(START_MS / 1000, 600))
    await vi.advanceTimersByTimeAsync(399_000)
    expect(source).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(2000)
    expect(source).toHaveBeenCalledTimes(2)
    expect(sent).toHaveLength(2)
    keeper.close()
  })

  it('refuses an empty token, and trims a file', async () => {
    expect(
      await keep(() => ' \n')
        .keeper.get()
        .catch((error: Error) => error.message),
    ).toBe('no token was given')
    const token = fresh()
    expect(await keep(() => `${token}\n`).keeper.get()).toBe(token)
  })

  const NONE: [string, unknown, string][] = [
    ['nothing', '', 'no token was given'],
    ['no text', 7, 'no token was given'],
    ['two lines', 'a\nb', 'the token is too long, or contains characters that no token has'],
    ['non-ASCII text', 'a\u20acb', 'the token is too long, or contains characters that no token has'],
    ['a control character', 'a\0b', 'the token is too long, or contains characters that no token has'],
    [
      'more than fits into a control message',
      'a'.repeat(8193),
      'the token is too long, or contains characters that no token has',
    ],
  ]
  it.each(NONE)('accepts no %s, from its source or by hand, and keeps the old one', async (_, none, message) => {
    let given: unknown = fresh()
    const { keeper, sent } = keep(() => given as string)
    const first = await keeper.get()
    given = none
    await expect(keeper.refresh()).rejects.toThrow(message)
    expect(() => keeper.set(none as string)).toThrow(new TypeError(message))
    expect(keeper.latest).toBe(first)
    expect(sent).toEqual([])
    keeper.close()
  })

  it('trims what is set by hand', () => {
    const { keeper } = keep(() => fresh())
    const token = fresh()
    keeper.set(`${token}\n`)
    expect(keeper.latest).toBe(token)
    keeper.close()
  })

  it('leaves no timer behind', async () => {
    const { keeper } = keep(async () => fresh())
    await keeper.get()
    keeper.close()
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('readOwnClaims', () => {
  it('reads the claims that are present, and nothing else', () => {
    expect(readOwnClaims(jwt(100, 10))).toEqual({
      sub: 'prod',
      aud: [],
      exp: 110,
      nbf: undefined,
      iat: 100,
      names: new Set(['prod']),
    })
    for (const text of ['', 'a.b', 'a.b.c', `a.${Buffer.from('[]').toString('base64url')}x.c`, 'a.bnVsbA.c']) {
      expect(readOwnClaims(text)).toBeUndefined()
    }
  })
})
