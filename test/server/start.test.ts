/** A start that fails or is aborted ends soon and leaves nothing behind. */
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer as listen, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { createServer, type ServerOptions } from '../../server/index.ts'
import { PeerListener } from '../../server/peer/listener.ts'
import { peerOptions } from '../replicas/fixture.ts'
import { eventually } from '../support/until.ts'
import { makeWorld } from './fixture.ts'

/** Sockets and files that keep the process alive, and file watchers. */
async function whatIsHeld(): Promise<Record<string, number>> {
  const kinds = process.getActiveResourcesInfo().filter(kind => /TCP|TLS|Pipe|FSEvent|GetAddrInfo/.test(kind))
  const watches = await Promise.all(
    (await readdir('/proc/self/fdinfo').catch(() => [])).map(fd =>
      readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => ''),
    ),
  )
  const held: Record<string, number> = {}
  for (const name of [...kinds, ...(watches.join('\n').match(/^inotify wd/gm) ?? [])])
    held[name] = (held[name] ?? 0) + 1
  return held
}

describe('a start', () => {
  let folder: string
  let file: string
  let hole: Server
  let port: number
  let options: ServerOptions
  let atRest: Record<string, number>
  beforeAll(async () => {
    const { keys } = await makeWorld()
    folder = await mkdtemp(join(tmpdir(), 'sallyport-start-'))
    file = join(folder, 'jwks.json')
    await writeFile(file, JSON.stringify(keys.jwks))
    atRest = await whatIsHeld()
    options = { control: 'off', domains: ['tunnels.test'], auth: { jwks: { file } } }
  })
  afterAll(() => rm(folder, { recursive: true }))
  beforeEach(async () => {
    // Accepts, and never answers.
    hole = listen(socket => void socket.on('error', () => {}).resume())
    await once(hole.listen(0, '127.0.0.1'), 'listening')
    port = (hole.address() as AddressInfo).port
  })
  afterEach(async () => {
    // All that is left is the black hole itself, and its ends of connections that the other end has closed.
    await expect.poll(whatIsHeld).toEqual({ ...atRest, TCPServerWrap: (atRest.TCPServerWrap ?? 0) + 1 })
    hole.close()
  })

  const slow: ReadonlyArray<readonly [string, () => Promise<Partial<ServerOptions>>]> = [
    ['a key set', async () => ({ auth: { jwks: { url: `https://127.0.0.1:${port}/` } } })],
    [
      'a list of revocations',
      async () => ({ auth: { jwks: { file }, revocations: { url: `https://127.0.0.1:${port}/` } } }),
    ],
    ['a directory', async () => ({ directory: { url: `redis://127.0.0.1:${port}` }, peer: await peerOptions() })],
    ['a directory with TLS', async () => ({ directory: { url: `rediss://127.0.0.1:${port}` } })],
    ['a Sentinel', async () => ({ directory: { url: `redis+sentinel://127.0.0.1:${port}/sally` } })],
  ]

  test.each(slow)('that waits for %s can be aborted at once', async (_name, make) => {
    const connected = once(hole, 'connection')
    const abort = new AbortController()
    const starting = createServer({ ...options, ...(await make()), signal: abort.signal })
    starting.catch(() => {})
    await connected
    abort.abort(new Error('stop'))
    await expect(starting).rejects.toThrow('stop')
  })

  test('asks for all key sets and lists at the same time', async () => {
    let open = 0
    hole.on('connection', socket => {
      open++
      socket.on('close', () => open--)
    })
    const url = `https://127.0.0.1:${port}/`
    const abort = new AbortController()
    const starting = createServer({
      ...options,
      auth: { jwks: { url }, revocations: { url } },
      access: { jwt: { jwks: { url }, audience: 'callers' } },
      signal: abort.signal,
    })
    starting.catch(() => {})
    await eventually(() => expect(open).toBe(3))
    abort.abort(new Error('stop'))
    await expect(starting).rejects.toThrow('stop')
  })

  test('that waits for a Sentinel that never answers goes on without it', {
    tags: ['slow'],
  }, async () => {
    const server = await createServer({ ...options, directory: { url: `redis+sentinel://127.0.0.1:${port}/sally` } })
    expect(server.stats().directory.state).toBe('lost')
    await server.close({ graceMs: 0 })
  })

  test('that is aborted between two listeners leaves none', async () => {
    const { server: ours } = await makeWorld()
    const tls = { cert: ours.certificate, key: ours.key }
    const abort = new AbortController()
    const logger = {
      ...noLogger,
      info: (_fields: object, message: string) => message === 'listening' && abort.abort(new Error('stop')),
    }
    const starting = createServer({
      ...options,
      ...{ control: { port: 0, tls }, public: { port: 0 }, signal: abort.signal, logger },
    })
    await expect(starting).rejects.toThrow('stop')
  })

  test('that is aborted while the name of its address for replicas is looked up leaves no listener', async () => {
    const abort = new AbortController()
    const { listen: listens } = PeerListener.prototype
    const spy = vi.spyOn(PeerListener.prototype, 'listen').mockImplementation(function (this: PeerListener, place) {
      const listening = listens.call(this, place)
      abort.abort(new Error('stop'))
      return listening
    })
    const directory = { url: `redis://127.0.0.1:${port}` }
    const peer = { ...(await peerOptions()), host: 'localhost' }
    await expect(createServer({ ...options, directory, peer, signal: abort.signal })).rejects.toThrow('stop')
    spy.mockRestore()
  })

  test('that is followed by a reload from other files and a close at once leaves no watch', async () => {
    const { server: ours } = await makeWorld()
    const filesOf = async (name: string) => {
      const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}-key.pem`)]
      await Promise.all([writeFile(cert, ours.certificate), writeFile(key, ours.key)])
      return { cert: { file: cert }, key: { file: key } }
    }
    const server = await createServer({ ...options, public: { port: 0, tls: await filesOf('one') } })
    const reloading = server.reload({ publicTls: await filesOf('two') })
    await server.close({ graceMs: 0 })
    expect(await reloading).toBe(true)
  })

  test('that was aborted before it began opens nothing', async () => {
    await expect(createServer({ ...options, signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow('stop')
  })

  test.each([
    [
      'the address for replicas is taken',
      async () => ({ directory: { url: `redis://127.0.0.1:${port}` }, peer: { ...(await peerOptions()), port } }),
      'EADDRINUSE',
    ],
    ['the public address is taken', async () => ({ public: { port } }), 'EADDRINUSE'],
    ['a CIDR is none', async () => ({ trustedProxies: ['nowhere'] }), 'nowhere'],
    [
      'the list of revocations is missing',
      async () => ({ auth: { jwks: { file }, revocations: { file: join(folder, 'none') } } }),
      'ENOENT',
    ],
  ] as const)('that fails because %s leaves nothing behind', async (_name, make, reason) => {
    await expect(createServer({ ...options, ...(await make()) })).rejects.toThrow(reason)
  })
})
