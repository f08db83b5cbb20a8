/** J2, J3, J6 and W6 under traffic: keys rotate and clocks differ, and no request may be lost. */
import { once } from 'node:events'
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { createKeys, createToken, type TokenKeys } from '../../certs/index.ts'
import { connect } from '../../client/index.ts'
import type { AuthOptions } from '../../server/options.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { makeSecrets, type Secrets } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

async function startKeyed(
  secrets: Secrets,
  auth: AuthOptions,
  token: () => Promise<string>,
  clock?: () => number,
): Promise<Pair> {
  const pair = await startPair({
    target: () => new Response('served'),
    secrets,
    server: { auth, ...(clock === undefined ? {} : { clock }) },
    client: { token },
  })
  stops.push(() => pair.stop())
  return pair
}

/** Sends requests until told to stop; each must be answered. */
async function traffic(pair: Pair) {
  const caller = await Http1Caller.connect(pair.place)
  const statuses = new Map<number, number>()
  let stopped = false
  const asking = (async () => {
    while (!stopped) {
      const { status } = await caller.ask({ path: '/' })
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
    caller.close()
  })()
  return async () => {
    stopped = true
    await asking
    expect([...statuses.keys()]).toEqual([200])
  }
}

const tokenOf = async (keys: TokenKeys, ttl = '1h', now = Date.now()) =>
  (await createToken({ key: keys.privateJwk, runtime: 'demo', ttl, now })).token

const setOf = (...keys: TokenKeys[]) => JSON.stringify({ keys: keys.flatMap(({ jwks }) => jwks.keys) })

/**
 * Puts each session on `token`, sending it again until the server knows the key: a changed file is noticed after a
 * moment.
 */
async function renewed({ server, tunnel }: Pair, token: string, after: number): Promise<void> {
  const isRenewed = () => {
    tunnel.setToken(token)
    expect(server.sessions().every(({ tokenEndsAt }) => tokenEndsAt > after)).toBe(true)
  }
  await eventually(isRenewed, 1_000)
}

describe('keys rotate without a lost request', () => {
  /** The steps of a rotation: both keys, tokens signed with the new one, then the new key alone. */
  async function rotate(auth: AuthOptions, secrets: Secrets, old: TokenKeys, publish: (set: string) => Promise<void>) {
    const fresh = await createKeys()
    let token = await tokenOf(old)
    const pair = await startKeyed(secrets, auth, async () => token)
    const stop = await traffic(pair)
    const { tokenEndsAt } = pair.server.sessions()[0]!
    await publish(setOf(old, fresh))
    token = await tokenOf(fresh, '2h')
    await renewed(pair, token, tokenEndsAt)
    await publish(setOf(fresh))
    await stop()
    expect(pair.server.stats()).toMatchObject({ sessionsEnded: 0 })
    // A stranger's key makes the server look again; from then on the old key opens nothing and the new one does.
    const pairs = [await createKeys(), old].map(keys => eventually(() => expectRefused(pair, secrets, keys)))
    await Promise.all(pairs)
    await pair.connect('demo', () => new Response('new'), { token: () => tokenOf(fresh) })
  }

  test('J3 from a URL', async () => {
    const secrets = await makeSecrets()
    const old = await createKeys()
    let set = JSON.stringify(old.jwks)
    const host = createHttps({ ...secrets.server }, (_request, response) => response.end(set))
    host.listen(0, '127.0.0.1')
    await once(host, 'listening')
    stops.push(() => host.close())
    const url = `https://127.0.0.1:${(host.address() as AddressInfo).port}/jwks`
    await rotate({ jwks: { url, ca: secrets.ca, coolDownMs: 0 } }, secrets, old, async text => {
      set = text
    })
  })

  test('J3 from a file', async () => {
    const secrets = await makeSecrets()
    const old = await createKeys()
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-'))
    stops.push(() => rm(folder, { recursive: true }))
    const file = join(folder, 'jwks.json')
    await writeFile(file, JSON.stringify(old.jwks))
    await rotate({ jwks: { file } }, secrets, old, async text => {
      await writeFile(`${file}.new`, text)
      await rename(`${file}.new`, file)
    })
  })
})

/** A client with a token of these keys is refused. */
async function expectRefused(pair: Pair, secrets: Secrets, keys: TokenKeys): Promise<void> {
  const over = new AbortController()
  const outcome = Promise.withResolvers<number | 'connected'>()
  const connecting = connect({
    url: `wss://127.0.0.1:${pair.server.controlAddress!.port}`,
    token: () => tokenOf(keys),
    ca: secrets.ca,
    proxy: '',
    target: 'http://127.0.0.1:1',
    connections: 1,
    signal: over.signal,
    on: { refused: ({ status }) => outcome.resolve(status), connected: () => outcome.resolve('connected') },
  })
  const found = await outcome.promise
  over.abort()
  await connecting.then(
    tunnel => tunnel.close({ graceMs: 0 }),
    () => {},
  )
  expect(found).toBe(401)
}

describe('clocks that are 60 s apart', () => {
  test.each([-60_000, 60_000])('J6 the server is %d ms off: a valid token works', async offMs => {
    const secrets = await makeSecrets()
    const keys = await createKeys()
    const pair = await startKeyed(
      secrets,
      { jwks: keys.jwks },
      () => tokenOf(keys, '10m'),
      () => Date.now() + offMs,
    )
    const stop = await traffic(pair)
    await pair.connect('demo', () => new Response('another'), { token: () => tokenOf(keys, '10m') })
    await stop()
  })
})
