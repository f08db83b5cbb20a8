/**
 * Each name is looked up once for all who wait, a few at a time, known ones first; the queue is bounded and empties.
 */
import type { LookupFunction } from 'node:net'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { NameLookups } from '../../../router/upstream/name-lookups.ts'

const options = { all: true }

/** Lookups that end when the test says so; `log` has what happens. */
function played(atOnce: number, slowAlone = false) {
  const log: string[] = []
  const underWay = new Map<string, (failed: string | undefined) => void>()
  const resolve: LookupFunction = (name, _, answer) => {
    log.push(`ask ${name}`)
    underWay.set(name, failed => {
      underWay.delete(name)
      if (failed === undefined) answer(null, `address of ${name}`, 4)
      else answer(Object.assign(new Error(failed), { code: failed }), '')
    })
  }
  const names = new NameLookups(resolve, atOnce, slowAlone)
  const leaving = new Map<string, () => void>()
  const steps: Record<string, (name: string, who: string) => void> = {
    want(name, who) {
      const { lookup, leave } = names.forConnection(who.split('@')[1] ?? '192.0.2.1')
      leaving.set(who, leave)
      lookup(name, options, (error, address) => {
        log.push(`${who}: ${error === null ? address : ((error as { reason?: string }).reason ?? error.code)}`)
      })
    },
    leave: (_, who) => leaving.get(who)!(),
    found: name => underWay.get(name)!(undefined),
    missing: name => underWay.get(name)!('ENOTFOUND'),
    pass: ms => vi.advanceTimersByTime(Number(ms)),
  }
  /**
   * `want a 1`: connection 1 wants name a (`1@address`: for another caller). `leave a 1`. `found a`, `missing a`: the
   * lookup in progress ends. `pass 5000`: time in ms.
   */
  const play = (script: string) => {
    for (const line of script.split(', ')) {
      const [step, name, who] = line.split(' ') as [string, string, string]
      steps[step]!(name, who)
    }
  }
  return { names, log, play }
}

describe('if only slow names wait', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['performance'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it.each([
    [
      'all names are looked up at once',
      'want a 1, want b 2, want c 3, missing a, found b, found c',
      'ask a, ask b, ask c, 1: ENOTFOUND, 2: address of b, 3: address of c',
    ],
    [
      'two whose resolver was silent take turns, and delay no other name',
      'want a 1, want b 2, pass 5000, missing a, missing b, want a 3, want b 4, want c 5, found c, missing a, missing b',
      'ask a, ask b, 1: ENOTFOUND, 2: ENOTFOUND, ask a, ask c, 5: address of c, ask b, 3: ENOTFOUND, 4: ENOTFOUND',
    ],
    [
      'one that is quick again no longer waits',
      'want a 1, want b 2, pass 5000, missing a, missing b, want b 3, found b, want a 4, want b 5, found b, missing a',
      'ask a, ask b, 1: ENOTFOUND, 2: ENOTFOUND, ask b, 3: address of b, ask a, ask b, 5: address of b, 4: ENOTFOUND',
    ],
    [
      'one that is given up while it waits is not looked up',
      'want a 1, want b 2, pass 5000, missing a, missing b, want a 3, want b 4, leave b 4, found a',
      'ask a, ask b, 1: ENOTFOUND, 2: ENOTFOUND, ask a, 3: address of a',
    ],
    [
      'one that was found late is not slow: it may have waited for a thread',
      'want a 1, want b 2, pass 5000, missing a, found b, want a 3, want b 4, found b, missing a',
      'ask a, ask b, 1: ENOTFOUND, 2: address of b, ask a, ask b, 4: address of b, 3: ENOTFOUND',
    ],
    [
      'one that is missing after a second is not slow either',
      'want a 1, want b 2, pass 1000, missing a, missing b, want a 3, want b 4, found a, found b',
      'ask a, ask b, 1: ENOTFOUND, 2: ENOTFOUND, ask a, ask b, 3: address of a, 4: address of b',
    ],
  ])('%s', (_, script, expected) => {
    const { names, log, play } = played(1, true)
    play(script)
    expect(log.join(', ')).toBe(expected)
    expect(names.size).toBe(0)
  })
})

describe('lookups of names', () => {
  it.each([
    ['a name is looked up at once', 1, 'want a 1, found a', 'ask a, 1: address of a'],
    ['a failure is passed on as it is', 1, 'want a 1, missing a', 'ask a, 1: ENOTFOUND'],
    [
      'one waits while another is looked up',
      1,
      'want a 1, want b 2, found a, found b',
      'ask a, ask b, 1: address of a, 2: address of b',
    ],
    [
      'as many are looked up at once as the limit allows',
      2,
      'want a 1, want b 2, want c 3, missing b, found a, found c',
      'ask a, ask b, ask c, 2: ENOTFOUND, 1: address of a, 3: address of c',
    ],
    ['a lookup in progress is shared', 2, 'want a 1, want a 2, found a', 'ask a, 1: address of a, 2: address of a'],
    [
      'one that waits is shared',
      1,
      'want a 1, want b 2, want b 3, found a, missing b',
      'ask a, ask b, 1: address of a, 2: ENOTFOUND, 3: ENOTFOUND',
    ],
    [
      'a finished lookup is not shared',
      1,
      'want a 1, missing a, want a 2, found a',
      'ask a, 1: ENOTFOUND, ask a, 2: address of a',
    ],
    [
      'names wait in order',
      1,
      'want a 1, want c 2, want b 3, missing a, missing c, missing b',
      'ask a, ask c, 1: ENOTFOUND, ask b, 2: ENOTFOUND, 3: ENOTFOUND',
    ],
    [
      'a name that resolved before goes first',
      1,
      'want k 1, found k, want a 2, want b 3, want k 4, missing a, found k, missing b',
      'ask k, 1: address of k, ask a, ask k, 2: ENOTFOUND, ask b, 4: address of k, 3: ENOTFOUND',
    ],
    [
      'one given up while it waits is not looked up',
      1,
      'want a 1, want b 2, want c 3, leave b 2, found a, found c',
      'ask a, ask c, 1: address of a, 3: address of c',
    ],
    [
      'of two who share, the other is answered',
      1,
      'want a 1, want b 2, want b 3, leave b 2, found a, found b',
      'ask a, ask b, 1: address of a, 3: address of b',
    ],
    [
      'one given up in progress keeps its place until it ends',
      1,
      'want a 1, want b 2, leave a 1, found a, found b',
      'ask a, ask b, 2: address of b',
    ],
    [
      'one given up in progress serves the next who wants it',
      1,
      'want a 1, leave a 1, want a 2, found a',
      'ask a, 2: address of a',
    ],
    [
      'to leave when it is over takes nobody else along',
      1,
      'want a 1, found a, want b 2, want a 3, leave a 1, found b, found a',
      'ask a, 1: address of a, ask b, ask a, 2: address of b, 3: address of a',
    ],
    [
      'networks take turns, however many names one of them wants',
      1,
      'want a 1, want b 2, want c 3, want d 4, want x 5@192.0.2.2, missing a, missing b, missing x, missing c, missing d',
      'ask a, ask b, 1: ENOTFOUND, ask x, 2: ENOTFOUND, ask c, 5@192.0.2.2: ENOTFOUND, ask d, 3: ENOTFOUND, 4: ENOTFOUND',
    ],
    [
      'among names that resolved before, too',
      1,
      'want k 0, found k, want l 0, found l, want m 0, found m, want a 1, want k 2, want l 3, want m 4@192.0.2.2, missing a, found k, found m, found l',
      'ask k, 0: address of k, ask l, 0: address of l, ask m, 0: address of m, ask a, ask k, 1: ENOTFOUND, ask m, 2: address of k, ask l, 4@192.0.2.2: address of m, 3: address of l',
    ],
    [
      'a name that two networks want has its turn with the earlier one, and once',
      1,
      'want a 1, want b 2, want c 3, want c 4@192.0.2.2, missing a, missing b, found c',
      'ask a, ask b, 1: ENOTFOUND, ask c, 2: ENOTFOUND, 3: address of c, 4@192.0.2.2: address of c',
    ],
    [
      'who leaves takes the turn of its own network along, and of no other',
      1,
      'want a 1, want b 2, want c 3, want c 4@192.0.2.2, leave c 4@192.0.2.2, missing a, missing b, found c',
      'ask a, ask b, 1: ENOTFOUND, ask c, 2: ENOTFOUND, 3: address of c',
    ],
    [
      'an IPv6 /64 is one network',
      1,
      'want a 1, want b 2@2001:db8::1, want c 3@2001:db8::2, want d 4, missing a, missing b, missing d, missing c',
      'ask a, ask b, 1: ENOTFOUND, ask d, 2@2001:db8::1: ENOTFOUND, ask c, 4: ENOTFOUND, 3@2001:db8::2: ENOTFOUND',
    ],
  ] as [string, number, string, string][])('%s', (_, atOnce, script, expected) => {
    const { names, log, play } = played(atOnce)
    play(script)
    expect(log.join(', ')).toBe(expected)
    expect(names.size).toBe(0)
  })

  it('1,024 names wait; one more is refused as overloaded, unless it is shared or has resolved before', () => {
    const { names, log, play } = played(1)
    play('want known 0, found known, want slow 1')
    for (let i = 0; i < 1_024; i++) play(`want x${i} x${i}`)
    log.length = 0
    play('want more 2, want x7 3, want known 4, want slow 5')
    expect(log).toEqual(['2: overloaded'])
    expect(names.size).toBe(1_026)
    play('leave x5 x5, want more 6')
    for (let i = 0; i < 1_024; i++) play(`leave x${i} x${i}`)
    play('leave x7 3, leave more 6, found slow, found known')
    expect(log).toEqual([
      '2: overloaded',
      'ask known',
      '1: address of slow',
      '5: address of slow',
      '4: address of known',
    ])
    expect(names.size).toBe(0)
  })

  it('another name gets its turn after 64 that have resolved before, however many of these wait', () => {
    const { log, play } = played(1)
    for (let i = 0; i < 100; i++) play(`want k${i} 0, found k${i}`)
    play('want slow 1, want a 2')
    for (let i = 0; i < 100; i++) play(`want k${i} k${i}@192.0.2.2`)
    log.length = 0
    play('missing slow')
    for (let i = 0; i < 64; i++) play(`found k${i}`)
    expect(log.filter(line => line.startsWith('ask')).slice(-2)).toEqual(['ask k63', 'ask a'])
    play('missing a')
    expect(log.at(-2)).toBe('ask k64')
  })

  it('if 1,024 wait, the caller that wants most loses its newest to one that wants less', () => {
    const { names, log, play } = played(1)
    play('want slow 0')
    for (let i = 0; i < 512; i++) play(`want x${i} x${i}, want y${i} y${i}@192.0.2.2`)
    log.length = 0
    play('want z 1@192.0.2.3, want x600 2')
    // All are shared, even with whoever has asked for most.
    expect(log).toEqual(['x511: overloaded', '2: overloaded'])
    play('want y511 3@192.0.2.3')
    expect(names.size).toBe(1_025)
    log.length = 0
    play('missing slow, missing x0, missing y0, missing z')
    expect(log.filter(line => line.startsWith('ask'))).toEqual(['ask x0', 'ask y0', 'ask z', 'ask x1'])
  })

  it('of a name that two networks want, one loses it and the other does not', () => {
    const { log, play } = played(1)
    play('want slow 0')
    for (let i = 0; i < 1_024; i++) play(`want x${i} x${i}`)
    play('want x1023 1@192.0.2.2')
    log.length = 0
    play('want a 2@192.0.2.3, missing slow, missing x0, found x1023')
    expect(log.filter(line => !line.startsWith('ask'))).toEqual([
      'x1023: overloaded',
      'x1022: overloaded',
      '0: ENOTFOUND',
      'x0: ENOTFOUND',
      '1@192.0.2.2: address of x1023',
    ])
  })

  it('of 1,025 names that resolved, the oldest is forgotten', () => {
    const { log, play } = played(1)
    for (let i = 0; i <= 1_024; i++) play(`want x${i} 0, found x${i}`)
    play('want slow 1, want x0 2, want x1 3')
    log.length = 0
    play('found slow, found x1, found x0')
    expect(log.filter(line => line.startsWith('ask'))).toEqual(['ask x1', 'ask x0'])
  })
})
