/** A routes file that changes while requests go through. */
import { once } from 'node:events'
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Logger } from '../../protocol/base/log.ts'
import { createRouter, type RouterService, RouteTableError, serveRouter } from '../../router/index.ts'
import { get, OK, RawUpstream } from './support.ts'

let folder: string
let one: RawUpstream
let two: RawUpstream
let running: RouterService | undefined

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-reload-'))
  one = await RawUpstream.start()
  two = await RawUpstream.start((socket, text) => {
    if (text.endsWith('\r\n\r\n')) socket.write(OK.replace('\r\nok', '\r\nno'))
  })
})

afterEach(async () => {
  await running?.close({ graceMs: 0 })
  running = undefined
  await Promise.all([one.stop(), two.stop(), rm(folder, { recursive: true })])
})

const yaml = (target: string) => `routes:\n  - { name: all, match: { path: / }, target: "${target}" }\n`

/** A logger that reports when a message arrives. */
function watchedLogger(): { logger: Logger; until: (message: string) => Promise<object> } {
  const seen = new Map<string, object>()
  const waiting = new Map<string, (fields: object) => void>()
  const note = (fields: object, message: string) => {
    seen.set(message, fields)
    waiting.get(message)?.(fields)
  }
  const until = (message: string) =>
    new Promise<object>(resolve => {
      seen.delete(message)
      waiting.set(message, resolve)
    })
  return { logger: { debug: () => {}, info: note, warn: note, error: note }, until }
}

const body = async () => (await get(running!.address.port, '/')).split('\r\n\r\n')[1]

it('a table given as an object has no file to read again', async () => {
  const routes = { routes: [{ name: 'all', match: { path: '/' }, target: one.url }] }
  running = await serveRouter({ port: 0, routes })
  const refusal = new TypeError('this router has no routes file: reload takes a table')
  await expect(running.reload()).rejects.toThrow(refusal)
  await running.reload(routes)
})

describe('a routes file that changes', () => {
  it('takes effect with the next request, while one in progress goes on where it began', async () => {
    const file = join(folder, 'routes.yaml')
    await writeFile(file, yaml(one.url))
    const { logger, until } = watchedLogger()
    const slow = await RawUpstream.start(socket => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab'))
    running = await serveRouter({ port: 0, routes: { file }, logger })
    await writeFile(file, yaml(slow.url))
    await until('routes reloaded')
    const caller = connect(running.address.port, '127.0.0.1').setEncoding('latin1')
    caller.write('GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
    let seen = ''
    caller.on('data', chunk => {
      seen += chunk
    })
    await slow.until(() => slow.received[0]?.endsWith('\r\n\r\n') === true)
    const reloaded = until('routes reloaded')
    await writeFile(file, yaml(two.url))
    await reloaded
    expect(await body()).toBe('no')
    slow.sockets[0]!.write('cd')
    await once(caller, 'close')
    expect(seen.endsWith('\r\n\r\nabcd')).toBe(true)
    await slow.stop()
  })

  it('drops nothing under traffic, even as Kubernetes swaps it', async () => {
    await mkdir(join(folder, 'v1'))
    await writeFile(join(folder, 'v1', 'routes.yaml'), yaml(one.url))
    await symlink('v1', join(folder, '..data'))
    await symlink('..data/routes.yaml', join(folder, 'routes.yaml'))
    const { logger, until } = watchedLogger()
    running = await serveRouter({ port: 0, routes: { file: join(folder, 'routes.yaml') }, logger })
    const answers: (string | undefined)[] = []
    let on = true
    const traffic = Promise.all(
      Array.from({ length: 8 }, async () => {
        while (on) answers.push(await body())
      }),
    )
    for (let version = 2; version < 6; version++) {
      const reloaded = until('routes reloaded')
      await mkdir(join(folder, `v${version}`))
      await writeFile(join(folder, `v${version}`, 'routes.yaml'), yaml(version % 2 === 0 ? two.url : one.url))
      await symlink(`v${version}`, join(folder, '..tmp'))
      await rename(join(folder, '..tmp'), join(folder, '..data'))
      await reloaded
    }
    on = false
    await traffic
    expect(new Set(answers)).toEqual(new Set(['ok', 'no']))
  })

  it('to an invalid one is refused and logged, and the old table stays in force', async () => {
    const file = join(folder, 'routes.yaml')
    await writeFile(file, yaml(one.url))
    const { logger, until } = watchedLogger()
    running = await serveRouter({ port: 0, routes: { file }, logger })
    const refused = until('bad routes file; the old routes stay in force')
    await writeFile(file, yaml(two.url).replace('match', 'mtach'))
    expect(await refused).toMatchObject({
      err: { message: `${file}:2:18: unknown key "mtach"; did you mean "match"?` },
    })
    expect(await body()).toBe('ok')
    await expect(running.reload()).rejects.toThrow('unknown key "mtach"')
    const reloaded = until('routes reloaded')
    await writeFile(file, yaml(two.url))
    await reloaded
    expect(await body()).toBe('no')
  })

  it('to the same invalid one is logged again if the file was missing meanwhile', async () => {
    const file = join(folder, 'routes.yaml')
    await writeFile(file, yaml(one.url))
    const { logger, until } = watchedLogger()
    running = await serveRouter({ port: 0, routes: { file }, logger })
    const err = { message: expect.stringContaining('unknown key "mtach"') }
    const other = join(folder, 'other.yaml')
    for (const gone of [false, true]) {
      if (gone) {
        const missing = until('bad routes file; the old routes stay in force')
        await rm(file)
        expect(await missing).not.toMatchObject({ err })
      }
      await writeFile(other, yaml(two.url).replace('match', 'mtach'))
      const refused = until('bad routes file; the old routes stay in force')
      await rename(other, file)
      expect(await refused).toMatchObject({ err })
    }
  })

  it('that is invalid at the start keeps the service from starting', async () => {
    const file = join(folder, 'routes.yaml')
    await expect(serveRouter({ port: 0, routes: { file } })).rejects.toThrow(`cannot read ${file} (ENOENT)`)
    await writeFile(file, 'routes: [')
    await expect(serveRouter({ port: 0, routes: { file } })).rejects.toBeInstanceOf(RouteTableError)
  })
})

describe('reload with a table', () => {
  it('throws for an invalid one and keeps the old one', async () => {
    await using router = createRouter({ routes: { routes: [{ name: 'a', match: {}, target: one.url }] } })
    expect(() => router.reload({ routes: [{ name: 'a', match: {}, target: 'nonsense' }] })).toThrow(RouteTableError)
    expect(router.match({ url: '/' })).toMatchObject({ outcome: 'forward', route: 'a', target: one.url })
  })

  it.each([
    [[], 'must be an object'],
    [{}, 'routes: is missing'],
    [{ routes: {} }, 'routes: must be a list'],
  ])('names what is not a table: %j', async (given, why) => {
    const table = given as unknown as { routes: [] }
    expect(() => createRouter({ routes: table })).toThrow(why)
    await using router = createRouter({ routes: { routes: [] } })
    expect(() => router.reload(table)).toThrow(RouteTableError)
  })
})
