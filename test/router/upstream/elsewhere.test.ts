/** R4: a name that a caller chose never leads to this machine, whatever the resolver says. */
import dns, { type LookupAddress } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { type RouterService, serveRouter } from '../../../router/index.ts'
import { elsewhere } from '../../../router/upstream/elsewhere.ts'
import { get, RawUpstream } from '../support.ts'

const HERE = [
  '127.0.0.1',
  '127.0.1.1',
  '0.0.0.0',
  '::1',
  '::',
  '::ffff:127.0.0.1',
  '169.254.169.254',
  'fe80::1',
  'fe80::1%eth0',
  'fd00:ec2::254',
  '::127.0.0.1',
  '64:ff9b::7f00:1',
  '64:ff9b::169.254.169.254',
  '2002:7f00:1::1',
]
const THERE = [
  '10.0.0.1',
  '192.168.0.1',
  '192.0.2.1',
  'fd00::1',
  '2001:db8::1',
  '64:ff9b::192.0.2.1',
  '2002:c000:201::1',
]

const family = (address: string) => (address.includes(':') ? 6 : 4)

/** What `net` is answered if the resolver returns these. */
function answered(addresses: readonly string[], all: boolean): unknown[] {
  const found = addresses.map(address => ({ address, family: family(address) }))
  const resolver: LookupFunction = (_name, options, answer) => {
    if (options.all === true) answer(null, found)
    else answer(null, found[0]!.address, found[0]!.family)
  }
  const seen: unknown[] = []
  elsewhere(resolver)('a.test', { all }, (error, address) => {
    const list = Array.isArray(address) ? address.map((one: LookupAddress) => one.address) : [address]
    seen.push(...(error === null ? list : [(error as { reason?: string }).reason]))
  })
  return seen
}

describe('a captured name', () => {
  it.each(HERE)('that is %s is an error', address => {
    expect(answered([address], true)).toEqual(['upstream-name'])
    expect(answered([address], false)).toEqual(['upstream-name'])
  })

  it.each(THERE)('that is %s leads there', address => {
    expect(answered([address], true)).toEqual([address])
    expect(answered([address], false)).toEqual([address])
  })

  it('that is both here and there leads there', () => {
    expect(answered([...HERE, ...THERE], true)).toEqual(THERE)
  })
})

describe('a router', () => {
  let service: RouterService | undefined
  let upstream: RawUpstream | undefined
  afterEach(async () => {
    vi.restoreAllMocks()
    await service?.close({ graceMs: 0 })
    await upstream?.stop()
  })

  it("checks a caller's name before it dials, and goes where its table says", async () => {
    upstream = await RawUpstream.start()
    const { port } = upstream
    const lookup: LookupFunction = (_name, options, answer) => {
      setImmediate(() =>
        options.all ? answer(null, [{ address: '127.0.0.1', family: 4 }]) : answer(null, '127.0.0.1', 4),
      )
    }
    vi.spyOn(dns, 'lookup').mockImplementation(lookup as typeof dns.lookup)
    service = await serveRouter({
      port: 0,
      routes: {
        routes: [
          { name: 'captured', match: { path: '/c/{name}' }, target: `http://{name}.test:${port}` },
          { name: 'fixed', match: { path: '/f' }, target: `http://fixed.test:${port}` },
        ],
        resolve: { [`known.test:${port}`]: `127.0.0.1:${port}` },
      },
    })
    const at = service.address.port
    expect(await get(at, '/c/here')).toMatch(/^HTTP\/1\.1 502 [\s\S]*sallyport-error: upstream-name/)
    expect(upstream.received).toHaveLength(0)
    expect(await get(at, '/f')).toMatch(/^HTTP\/1\.1 200 /)
    expect(await get(at, '/c/known')).toMatch(/^HTTP\/1\.1 200 /)
  })
})
