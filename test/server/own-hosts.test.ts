/** Runtimes' own hosts: who has one, who is told, and when it is given up. A real server, clients over real WSS. */
import { afterEach, describe, expect, test } from 'vitest'
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import type { DirectoryListener, RuntimeState } from '../../server/directory/directory.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'
import type { ServerOptions } from '../../server/options.ts'
import { OwnHosts } from '../../server/own-hosts.ts'
import { Questions } from '../../server/questions.ts'
import type { Server } from '../../server/server.ts'
import { until } from '../support/until.ts'
import { always, call, dial, leave, startServer, type TestClient, token } from './fixture.ts'
import { ForgedDirectory } from './forged-directory.ts'

const HOST = 'hooks.customer.example'
const HOLD = { holdMs: 0, startupMs: 0 }

let servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.map(server => server.close({ graceMs: 0 })))
  servers = []
})

async function start(options: Partial<ServerOptions> = {}): Promise<Server> {
  const server = await startServer({ ownHosts: true, hold: HOLD, ...options })
  servers.push(server)
  return server
}

async function join(
  server: Server,
  runtime: string,
  hosts: string[] = [HOST],
  instance = runtime,
): Promise<TestClient> {
  const bearer = await token(runtime, { hosts })
  return dial(server, { token: bearer, handler: always(runtime), hello: { instance } })
}

/** Who answers on the host, or the error. */
async function whose(server: Server, host: string = HOST): Promise<string> {
  const { status, text, headers } = await call(server, host)
  return status === 200 ? text : String(headers['sallyport-error'])
}

describe('a host of its own', () => {
  test('leads to its runtime beside its name under the domain, in any case, with any port and a trailing dot', async () => {
    const server = await start()
    await join(server, 'a')
    for (const host of [HOST, 'HOOKS.Customer.example:8443', `${HOST}.`, 'a.tunnels.example.com']) {
      expect(await whose(server, host)).toBe('a')
    }
    for (const host of ['customer.example', `x.${HOST}`, 'hooks.customer.example.com', '127.0.0.1', 'hooks']) {
      expect(await whose(server, host)).toBe('unknown-host')
    }
    expect(server.stats().hosts).toEqual({ held: 1, contested: 0, conflicts: 0 })
    expect(server.sessions()[0]!.hosts).toEqual([HOST])
  })

  test('stays with the first runtime that claimed it; the second is told, is served otherwise, and gets it when the first has gone', async () => {
    const lines: string[] = []
    const told = (fields: object, message: string) => lines.push(`${message} ${JSON.stringify(fields)}`)
    const logger: Logger = { debug() {}, info() {}, warn: told, error: told }
    const server = await start({ hold: { ...HOLD, forgetMs: 0 }, logger })
    const first = await join(server, 'a')
    const second = await join(server, 'b', [HOST, 'b.customer.example'])
    expect(await second.message('notice')).toMatchObject({
      code: 'host-taken',
      message: `the host ${HOST} belongs to another runtime, which keeps it`,
    })
    expect([await whose(server), await whose(server, 'b.customer.example')]).toEqual(['a', 'b'])
    expect(server.stats().hosts).toEqual({ held: 2, contested: 1, conflicts: 1 })
    expect(lines).toEqual([
      `a runtime claims a host that another runtime has; the other one keeps it {"host":"${HOST}","runtime":"b","holder":"a"}`,
    ])
    await leave(server, first)
    expect(await second.message('notice')).toMatchObject({ code: 'host-served' })
    expect(await whose(server)).toBe('b')
    expect(server.stats().hosts).toEqual({ held: 2, contested: 0, conflicts: 1 })
  })

  test('is kept while its runtime reconnects, and its callers learn that it is offline', async () => {
    const server = await start()
    const first = await join(server, 'a')
    const second = await join(server, 'b')
    await second.message('notice')
    await leave(server, first)
    expect(await whose(server)).toBe('runtime-offline')
    await join(server, 'a', [HOST], 'later')
    await until(async () => (await whose(server)) === 'a')
    expect(server.stats().hosts!.conflicts).toBe(1)
  })

  test('goes with the last of the sessions that claim it, not with the first', async () => {
    const server = await start({ hold: { ...HOLD, forgetMs: 0 } })
    const first = await join(server, 'a')
    await join(server, 'a')
    const other = await join(server, 'b')
    await other.message('notice')
    await leave(server, first)
    expect(await whose(server)).toBe('a')
  })

  test('stays with a runtime that has gone if no other claims it', async () => {
    const server = await start({ hold: { ...HOLD, forgetMs: 0 } })
    const client = await join(server, 'a')
    await leave(server, client)
    expect(await whose(server)).toBe('runtime-offline')
    expect(server.stats().hosts).toEqual({ held: 0, contested: 0, conflicts: 0 })
  })

  test('is not served for a runtime that returns with a token that does not claim it', async () => {
    const server = await start({ hold: { ...HOLD, forgetMs: 0 } })
    await leave(server, await join(server, 'a'))
    const client = await join(server, 'a', [])
    expect([await whose(server), await whose(server, 'a.tunnels.example.com')]).toEqual(['runtime-offline', 'a'])
    await leave(server, client)
    await join(server, 'a')
    expect(await whose(server)).toBe('a')
  })

  test('D3: is served by nobody whose token does not name it, whatever the directory says', async () => {
    const directory = new ForgedDirectory()
    const server = await start({ directory })
    await join(server, 'a')
    await join(server, 'b', [])
    expect(await whose(server)).toBe('a')
    directory.says(HOST, 'b')
    expect([await whose(server), await whose(server, 'b.tunnels.example.com')]).toEqual(['runtime-offline', 'b'])
    await join(server, 'b', [HOST], 'another')
    expect(await whose(server)).toBe('b')
  })

  test('is served by those sessions of its runtime whose tokens name it', async () => {
    const server = await start()
    const answers = async (name: string, hosts: string[]) =>
      dial(server, { token: await token('a', { hosts }), handler: always(name), hello: { instance: 'one' } })
    await answers('without', [])
    await answers('with', [HOST])
    await answers('without', [])
    const said = await Promise.all(Array.from({ length: 20 }, () => whose(server)))
    expect(new Set(said)).toEqual(new Set(['with']))
  })

  test('of a runtime that returns without it is not served to those who waited, but is with a fresh token that names it', async () => {
    const server = await start({ hold: { ...HOLD, holdMs: 60_000 } })
    await leave(server, await join(server, 'a'))
    const waiting = whose(server)
    await until(() => server.stats().held === 1)
    const client = await join(server, 'a', [])
    expect(await whose(server, 'a.tunnels.example.com')).toBe('a')
    expect(server.stats().held).toBe(1)
    client.session.control({ type: 'reauth', token: await token('a', { hosts: [HOST] }) })
    expect(await waiting).toBe('a')
  })

  test('does not go to a runtime that claimed it in vain and has left, while another one waits for it', async () => {
    const server = await start()
    const first = await join(server, 'a')
    const gone = await join(server, 'b')
    await gone.message('notice')
    await leave(server, gone)
    const waiting = await join(server, 'c')
    await waiting.message('notice')
    first.session.control({ type: 'reauth', token: await token('a') })
    await first.message('reauth-ok')
    expect(await whose(server)).toBe('c')
  })

  test('is gained and lost with a fresh token on a live session', async () => {
    const server = await start()
    const first = await join(server, 'a', [HOST, 'one.customer.example'])
    const second = await join(server, 'b')
    await second.message('notice')
    first.session.control({
      type: 'reauth',
      token: await token('a', { hosts: ['one.customer.example', 'two.customer.example'] }),
    })
    await first.message('reauth-ok')
    expect(await second.message('notice')).toMatchObject({ code: 'host-served' })
    expect(await whose(server)).toBe('b')
    expect([await whose(server, 'one.customer.example'), await whose(server, 'two.customer.example')]).toEqual([
      'a',
      'a',
    ])
  })

  test('that a fresh token no longer claims leads nowhere, although its runtime is live', async () => {
    const server = await start()
    const client = await join(server, 'a')
    client.session.control({ type: 'reauth', token: await token('a') })
    await client.message('reauth-ok')
    expect([await whose(server), await whose(server, 'a.tunnels.example.com')]).toEqual(['unknown-host', 'a'])
    client.session.control({ type: 'reauth', token: await token('a', { hosts: [HOST] }) })
    await client.message('reauth-ok')
    await until(async () => (await whose(server)) === 'a')
  })

  test('is free at once when the token is revoked', async () => {
    const server = await start()
    const first = await join(server, 'a')
    const second = await join(server, 'b')
    await second.message('notice')
    await server.revoke({ runtime: 'a' })
    await first.closed
    expect(await second.message('notice')).toMatchObject({ code: 'host-served' })
    expect(await whose(server)).toBe('b')
  })

  test('does not keep a session whose token is revoked, although the directory throws when it is given up', async () => {
    const directory = new MemoryDirectory()
    directory.gone = () => {
      throw new Error('thrown on purpose')
    }
    const server = await start({ directory })
    const clients = [await join(server, 'a'), await join(server, 'a', [])]
    expect(await server.revoke({ runtime: 'a' })).toEqual({ ended: 2, kept: false })
    for (const client of clients) expect((await client.closed).code).toBe(4401)
  })

  test('leads to the runtime while its session drains and another one takes over', async () => {
    const server = await start()
    const old = await join(server, 'a', [HOST], 'old')
    expect(server.drainRuntime('a')).toBe(1)
    await old.message('drain')
    await join(server, 'a', [HOST], 'new')
    old.session.control({ type: 'drained', lastStream: 0 })
    expect(await whose(server)).toBe('a')
  })

  test('may not be claimed below the domain: such a token lets nobody in', async () => {
    const refusals: string[] = []
    const server = await start()
    server.on('refused', ({ detail }) => refusals.push(detail))
    await expect(join(server, 'a', ['b.tunnels.example.com'])).rejects.toMatchObject({ status: 401 })
    expect(refusals).toEqual([
      'hosts: sallyport_hosts names b.tunnels.example.com, which is ours (tunnels.example.com)',
    ])
  })

  test('is not granted if the server allows none; the client is told', async () => {
    const server = await start({ ownHosts: false })
    const client = await join(server, 'a')
    expect(await client.message('notice')).toMatchObject({ code: 'host-refused' })
    expect([await whose(server), await whose(server, 'a.tunnels.example.com')]).toEqual(['unknown-host', 'a'])
    expect(server.stats().hosts).toBeUndefined()
  })

  test("may arrive at any moment after the server's start: senders are told to try again", async () => {
    const server = await start({ hold: { holdMs: 0 } })
    expect([await whose(server), await whose(server, '127.0.0.1')]).toEqual(['runtime-offline', 'unknown-host'])
  })
})

/** A directory that cannot be reached at first, and that must be asked about each name. */
class AwayDirectory extends MemoryDirectory {
  readonly #asked = new Set<string>()
  isAway = true

  override find(name: string): RuntimeState | undefined {
    return this.#asked.has(name) ? super.find(name) : ('unknown' as never)
  }

  override async refresh(name: string): Promise<RuntimeState | undefined> {
    if (!this.isAway) this.#asked.add(name)
    return this.find(name)
  }
}

test('hosts that were claimed while the directory was away are all served when it is back', async () => {
  const directory = new AwayDirectory()
  const questions = new Questions(directory)
  const hosts = new OwnHosts({ directory, questions, logger: noLogger, keepMs: 0, startupMs: 0 })
  directory.listen({ changed: state => hosts.changed(state) } as DirectoryListener)
  const claimed = Array.from({ length: 320 }, (_, i) => `h${i}.customer.example`)
  hosts.claim({ id: 'one', runtime: 'a', tell: () => {} }, claimed)
  await new Promise(setImmediate)
  directory.isAway = false
  hosts.regained()
  // Only promises are due, no timers.
  for (let i = 0; i < 10; i++) await new Promise(setImmediate)
  expect(hosts.stats().held).toBe(claimed.length)
  hosts.close()
})

test('a host that a session claims is not unknown while the directory has not been told', async () => {
  const directory = new MemoryDirectory()
  const questions = new Questions(directory)
  const hosts = new OwnHosts({ directory, questions, logger: noLogger, keepMs: 0, startupMs: 0 })
  directory.ready = () => new Promise(() => {})
  hosts.claim({ id: 'one', runtime: 'a', tell: () => {} }, [HOST])
  expect([hosts.mayBeServed(HOST), hosts.mayBeServed('other.example')]).toEqual([true, false])
  hosts.close()
})
