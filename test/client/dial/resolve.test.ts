import type { LookupAddress } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { describe, expect, it, vi } from 'vitest'
import { Resolver } from '../../../client/dial/resolve.ts'

const v4 = (...numbers: number[]): LookupAddress[] =>
  numbers.map(number => ({ address: `10.0.0.${number}`, family: 4 }))

type Answer = LookupAddress[] | Error | undefined

/** A resolver's other end: gives the answers in turn; `undefined` gives none. */
function answers(...list: Answer[]) {
  let lookups = 0
  const lookup: LookupFunction = (_name, _options, callback) => {
    const answer = list[lookups++]
    if (answer instanceof Error) callback(answer, [])
    else if (answer !== undefined) callback(null, answer)
  }
  return { lookup, lookups: () => lookups }
}

const failing = (code: string) => Object.assign(new Error(code), { code })
const ends = (addresses: readonly LookupAddress[]) => addresses.map(({ address }) => address.at(-1)).join('')

describe('the resolver', () => {
  it('starts with another address of the name each time', async () => {
    const resolver = new Resolver(answers(v4(1, 2, 3), v4(1, 2, 3), v4(1, 2, 3), v4(1, 2, 3)).lookup)
    const orders = []
    for (const turn of [0, 1, 2, 3]) orders.push(ends(await resolver.resolve('replicas.example.com', turn)))
    expect(orders).toEqual(['123', '231', '312', '123'])
    expect(resolver.machines('replicas.example.com')).toBe(3)
  })

  it('treats the two address families of one machine as one machine', async () => {
    const both = [...v4(1), { address: '2001:db8::1', family: 6 }]
    const resolver = new Resolver(answers(both).lookup)
    await resolver.resolve('one.example.com')
    expect(resolver.machines('one.example.com')).toBe(1)
    expect(resolver.machines('never-asked.example.com')).toBe(1)
  })

  it('makes no query for an address or for localhost', async () => {
    const { lookup, lookups } = answers()
    const resolver = new Resolver(lookup)
    expect(await resolver.resolve('::1')).toEqual([{ address: '::1', family: 6 }])
    expect(await resolver.resolve('demo.tunnels.localhost')).toEqual([{ address: '127.0.0.1', family: 4 }])
    expect(lookups()).toBe(0)
  })

  it('keeps learning once it knows as many names as it remembers, and forgets the least recently used', async () => {
    let turn = 1
    let broken = false
    const resolver = new Resolver((_name, _options, callback) => {
      if (broken) callback(failing('EAI_AGAIN'), [])
      else callback(null, v4(turn))
    })
    for (let i = 0; i < 64; i++) await resolver.resolve(`n${i}.example.com`)
    turn = 2
    for (const name of ['n0.example.com', 'n64.example.com']) expect(ends(await resolver.resolve(name))).toBe('2')
    broken = true
    for (const name of ['n0.example.com', 'n64.example.com']) expect(ends(await resolver.resolve(name))).toBe('2')
    expect(ends(await resolver.resolve('n2.example.com'))).toBe('1')
    await expect(resolver.resolve('n1.example.com')).rejects.toMatchObject({ code: 'EAI_AGAIN' })
  })

  it('uses what it knows while the resolver fails or hangs, but not if the name is gone', async () => {
    vi.useFakeTimers()
    const { lookup } = answers(v4(1), failing('EAI_AGAIN'), failing('ENOTFOUND'), undefined)
    const resolver = new Resolver(lookup)
    expect(ends(await resolver.resolve('a.example.com'))).toBe('1')
    expect(ends(await resolver.resolve('a.example.com'))).toBe('1')
    await expect(resolver.resolve('a.example.com')).rejects.toMatchObject({ code: 'ENOTFOUND' })
    const waiting = resolver.resolve('a.example.com')
    await vi.advanceTimersByTimeAsync(1000)
    expect(ends(await waiting)).toBe('1')
    vi.useRealTimers()
  })

  it('asks again if an answer never arrived', async () => {
    vi.useFakeTimers()
    const { lookup } = answers(undefined, v4(2))
    const resolver = new Resolver(lookup)
    const lost = expect(resolver.resolve('a.example.com')).rejects.toMatchObject({ code: 'EAI_AGAIN' })
    await vi.advanceTimersByTimeAsync(35_000)
    await lost
    expect(ends(await resolver.resolve('a.example.com'))).toBe('2')
    vi.useRealTimers()
  })

  it('fails if the answer cannot be read, without an uncaught error', async () => {
    const read = () => {
      throw failing('EBROKEN')
    }
    const broken = [Object.defineProperty(v4(1)[0]!, 'address', { get: read })]
    const lookup: LookupFunction = (_name, _options, callback) => void setImmediate(callback, null, broken)
    await expect(new Resolver(lookup).resolve('a.example.com')).rejects.toMatchObject({ code: 'EBROKEN' })
  })

  it('waits for one answer at a time', async () => {
    const { lookup, lookups } = answers(undefined)
    const resolver = new Resolver(lookup)
    void resolver.resolve('a.example.com')
    void resolver.resolve('a.example.com')
    expect(lookups()).toBe(1)
  })

  it('reports a name without an address as not found', async () => {
    await expect(new Resolver(answers([]).lookup).resolve('a.example.com')).rejects.toMatchObject({ code: 'ENOTFOUND' })
  })
})
