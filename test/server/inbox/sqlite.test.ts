/** The file of an inbox: what is in it after a crash, a full disk or damage, and what cannot be used at all. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { checkInboxOptions } from '../../../server/inbox/options.ts'
import { checkSqlite, openSqlite, type SqliteStore } from '../../../server/inbox/sqlite.ts'
import { openFile } from '../../../server/inbox/sqlite-file.ts'
import { long } from '../../support/needs.ts'
import { until } from '../../support/until.ts'
import { append, bytes, contentsOf, message, NOW } from './messages.ts'

const KEEP = { deadMs: 1e9, deliveredMs: 1e9, maxDelivered: 10, rulesMs: 1e9 }

let folder: string
let path: string
const open: SqliteStore[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-inbox-'))
  path = join(folder, 'inbox.db')
})
afterEach(async () => {
  for (const store of open.splice(0)) await store.close()
  rmSync(folder, { recursive: true, force: true })
})

async function start(at = path): Promise<SqliteStore> {
  const store = await openSqlite({ path: at, minFreeBytes: 0, logger: noLogger })
  open.push(store)
  return store
}

test('a message is found by its id, or by the beginning of it, through the index', () => {
  const { file } = openFile(path, 0)
  file.apply(
    ['0b5', '0b5f', '0b6'].map(id => ({
      op: 'append',
      message: message(id),
      head: bytes('{}'),
      rest: bytes('b'),
      at: NOW,
    })),
  )
  const prepare = vi.spyOn(DatabaseSync.prototype, 'prepare')
  const idsOf = (id: string) => file.list({ id, limit: 9 }).map(found => found.id)
  expect([idsOf('0b5f'), idsOf('0b5'), idsOf('0b7'), idsOf('')]).toEqual([
    ['0b5f'],
    ['0b5f', '0b5'],
    [],
    ['0b6', '0b5f', '0b5'],
  ])
  const [text] = prepare.mock.calls[0]!
  prepare.mockRestore()
  file.close()
  const database = new DatabaseSync(path)
  const plan = database.prepare(`EXPLAIN QUERY PLAN ${text}`).all()
  database.close()
  expect(plan[0]!.detail).toBe('SEARCH messages USING INDEX sqlite_autoindex_messages_1 (id>? AND id<?)')
})

test('each statement is prepared once and kept, whatever the values', () => {
  const { file } = openFile(path, 0)
  const prepare = vi.spyOn(DatabaseSync.prototype, 'prepare')
  const use = (id: string, at: number) => {
    file.apply([
      { op: 'part', id, n: 1, bytes: bytes('a') },
      { op: 'append', message: message(id, { parts: 3, dedupe: id }), head: bytes('{}'), rest: bytes('b'), at: NOW },
      { op: 'update', id, set: { failures: at, next: at }, at },
      { op: 'update', id, set: { state: 'delivered', reason: id }, at },
      { op: 'drop', id },
      { op: 'forget', id },
      { op: 'rules', runtime: id, rules: id, at },
      { op: 'pause', runtime: id, paused: true },
    ])
    file.next(id, id, at)
    file.part(id, at)
    file.list({ runtime: id, lane: id, state: 'dead', since: at, id, before: [id], limit: at })
    file.sweep(at, { ...KEEP, maxDelivered: at })
  }
  use('a', 1)
  const { length } = prepare.mock.calls
  use('b', 2)
  expect(prepare.mock.calls.slice(length)).toEqual([])
  prepare.mockRestore()
  file.close()
})

test('what was appended is there after a restart, in order, and nobody else may read the file', async () => {
  const store = await start()
  await Promise.all(['c', 'a', 'b'].map(id => append(store, message(id))))
  await store.apply({ op: 'update', id: 'c', set: { state: 'delivered' }, at: NOW })
  await store.close()
  expect(readdirSync(folder).map(name => statSync(join(folder, name)).mode & 0o077)).toEqual([0])
  const again = await start()
  expect((await again.next('demo', 'l', 5)).map(({ id }) => id)).toEqual(['a', 'b'])
  expect(Buffer.from((await again.part('a', 1))!).toString()).toBe('body')
  expect(await again.part('c', 1)).toBeUndefined()
  expect(contentsOf(again)).toMatchObject({ lanes: [{ runtime: 'demo', lane: 'l', messages: 2 }] })
})

test('parts whose message never arrived are gone after a restart', async () => {
  const store = await start()
  await store.apply({ op: 'part', id: 'torn', n: 1, bytes: bytes('half') })
  await store.close()
  expect(await (await start()).part('torn', 1)).toBeUndefined()
})

describe('a file that cannot be used', () => {
  test.each([
    ['of something else', 'CREATE TABLE t (x)', 'is not the file of an inbox'],
    [
      'of a newer version',
      `PRAGMA journal_mode = WAL; PRAGMA application_id = ${0x53696e62}; PRAGMA user_version = 9; CREATE TABLE t (x)`,
      'was written by a newer sallyport (schema 9, this one has 1)',
    ],
  ])('%s: the start fails, and the file is unchanged', async (_what, sql, problem) => {
    const file = new DatabaseSync(path)
    file.exec(sql)
    file.close()
    const before = readFileSync(path)
    await expect(start()).rejects.toThrow(problem)
    await expect(start()).rejects.toThrow(TypeError)
    expect(readFileSync(path).equals(before)).toBe(true)
    expect(readdirSync(folder)).toEqual(['inbox.db'])
  })
  test.each([
    ['a folder', () => mkdirSync(path)],
    ['a pipe', () => execFileSync('mkfifo', [path])],
    ['a device', () => symlinkSync('/dev/null', path)],
  ])('that is %s: the start fails', async (_what, make) => {
    make()
    await expect(start()).rejects.toThrow(new TypeError(`inbox: ${path} is not a plain file`))
  })
  test.each([':memory:', 'file:x?mode=memory'])("%s: not a name of SQLite's, which would keep it in memory", name => {
    const { place } = checkInboxOptions({ url: `sqlite:${name}` })!
    expect(place).toEqual({ kind: 'sqlite', path: resolve(name) })
  })
  test('in a missing folder: the start fails, and says what to do', async () => {
    await expect(start(join(folder, 'none', 'x.db'))).rejects.toThrow(/there is no folder .*none: create it/)
  })
})

test('an older Node, whose SQLite is not good enough, is refused', () => {
  const { versions } = process
  const defined = Object.getOwnPropertyDescriptor(process, 'versions')!
  Object.defineProperty(process, 'versions', { ...defined, value: { ...versions, node: '24.14.1' } })
  try {
    expect(() => checkSqlite(path)).toThrow('use Node 24.15 or newer')
  } finally {
    Object.defineProperty(process, 'versions', defined)
  }
})

test('what waits for its thread hears that it has ended', async () => {
  const store = await start()
  vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(function (this: Worker) {
    void this.terminate()
  })
  const ended = { kind: 'away', message: 'its thread has ended' }
  await expect(append(store, message('a'))).rejects.toMatchObject(ended)
  await expect(store.counts()).rejects.toMatchObject({ kind: 'away' })
})

test.each([
  ['no database', 'this is text, and no database at all. '.repeat(200)],
  ['a database that was overwritten in its midst', 0],
  ['a database of which the midst of a long webhook was overwritten', 500_000],
])('damage (%s): it is set aside and logged, and a new file begins', async (_what, text) => {
  if (typeof text === 'string') writeFileSync(path, text)
  else {
    const store = await start()
    for (let i = 0; i < 50; i++) await append(store, message(`m${i}`, { parts: 2 }))
    await append(store, message('long', { parts: 2 }), 'x'.repeat(text))
    await store.close()
    const whole = readFileSync(path)
    const [from, to] = text === 0 ? [4096, whole.length] : [whole.length - 250_000, whole.length - 100_000]
    writeFileSync(path, whole.fill(0x5a, from, to))
  }
  const before = readFileSync(path)
  const store = await start()
  expect((await append(store, message('new'))).status).toBe('stored')
  const { setAside } = store.stats()
  expect(setAside).toContain(`${path}.damaged-`)
  // SQLite counts in the first hundred bytes how often the file was opened for writing.
  const rest = (file: Buffer) => file.subarray(100)
  expect(rest(readFileSync(setAside!)).equals(rest(before))).toBe(true)
})

test.each([
  ['deleted', () => rmSync(path)],
  ['replaced', () => renameSync(join(folder, 'older.db'), path)],
])(
  'a file that is %s while in use: a copy of it is set aside, and nothing is accepted before that',
  async (what, change) => {
    const made = await start(join(folder, 'older.db'))
    await append(made, message('older'))
    await made.close()
    const store = await start()
    await append(store, message('a'))
    change()
    await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
    await until(() => store.stats().open)
    expect(await append(store, message('c'))).toMatchObject({ status: 'stored' })
    const { setAside } = store.stats()
    expect(statSync(setAside!).mode & 0o077).toBe(0)
    const copy = await start(setAside)
    expect((await copy.next('demo', 'l', 9)).map(({ id }) => id)).toEqual(['a'])
    expect((await store.next('demo', 'l', 9)).map(({ id }) => id)).toEqual(what === 'deleted' ? ['c'] : ['older', 'c'])
  },
)

test.each<[string, (store: SqliteStore) => Promise<unknown>]>([
  ['a webhook', async store => await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })],
  ['a sweep', async store => await expect(store.sweep(NOW, KEEP)).rejects.toMatchObject({ kind: 'away' })],
])('a log that is deleted while its file is in use is noticed by %s, and nothing is lost', async (_, notice) => {
  const store = await start()
  await append(store, message('a'))
  rmSync(`${path}-wal`)
  await notice(store)
  await until(() => store.stats().open)
  await append(store, message('c'))
  // What a kill would leave behind.
  const left = join(folder, 'left.db')
  for (const end of ['', '-wal']) copyFileSync(path + end, left + end)
  expect((await (await start(left)).next('demo', 'l', 9)).map(({ id }) => id)).toEqual(['a', 'c'])
  expect(store.stats().setAside).toBeUndefined()
})

test('a file that another server has: it is offline until that one ends', async () => {
  const first = await start()
  const second = await start()
  await expect(append(second, message('b'))).rejects.toMatchObject({ kind: 'away' })
  await append(first, message('a'))
  await first.close()
  await until(() => second.stats().open)
  expect(contentsOf(second)).toMatchObject({ counts: [{ runtime: 'demo', messages: 1 }] })
})

test.each([
  ['waits for the file', async () => {}],
  ['has ended', async (second: SqliteStore) => await second.close()],
])('a second server in the same process that %s: other processes do not get the file', async (_what, then) => {
  await start()
  await then(await start())
  const program = `const { DatabaseSync } = require('node:sqlite')
    new DatabaseSync(process.argv[1]).exec('BEGIN IMMEDIATE')`
  const { stderr } = spawnSync(process.execPath, ['-e', program, path], { encoding: 'utf8' })
  expect(stderr).toContain('database is locked')
})

test.each(['data/real.db', 'data/../data/real.db', 'second.db'])(
  'a link to %s: the file behind it is created, also after it was deleted, and its copy is beside it',
  async target => {
    mkdirSync(join(folder, 'data'))
    symlinkSync(join(folder, 'data', 'real.db'), join(folder, 'second.db'))
    symlinkSync(target, path)
    const store = await start()
    const real = join(folder, 'data', 'real.db')
    expect(statSync(real).mode & 0o077).toBe(0)
    await append(store, message('a'))
    rmSync(real)
    await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
    await until(() => store.stats().open)
    await append(store, message('c'))
    expect((await store.next('demo', 'l', 9)).map(({ id }) => id)).toEqual(['c'])
    expect(statSync(real).mode & 0o077).toBe(0)
    const { setAside } = store.stats()
    expect(setAside).toContain(`${realpathSync(real)}.damaged-`)
    const copy = await start(setAside)
    expect((await copy.next('demo', 'l', 9)).map(({ id }) => id)).toEqual(['a'])
  },
)

test('a log that is deleted behind a link is noticed as well', async () => {
  const real = join(folder, 'real.db')
  symlinkSync(real, path)
  const store = await start()
  await append(store, message('a'))
  rmSync(`${real}-wal`)
  await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
})

test('a link to itself: the start fails', async () => {
  symlinkSync(path, path)
  await expect(start()).rejects.toThrow('ELOOP')
})

test('a deleted file whose folder is away for a while: the copy is still named', async () => {
  const data = join(folder, 'data')
  mkdirSync(data)
  symlinkSync(join(data, 'real.db'), path)
  const store = await start()
  await append(store, message('a'))
  rmSync(path)
  symlinkSync(join(folder, 'none', 'real.db'), path)
  await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
  await until(() => readdirSync(data).some(name => name.includes('.damaged-')))
  await expect(append(store, message('b'))).rejects.toBeInstanceOf(Error)
  mkdirSync(join(folder, 'none'))
  await until(() => store.stats().open)
  expect(store.stats().setAside).toContain('.damaged-')
})

test('a disk without enough free space: full for new webhooks, while stored ones can be settled', async () => {
  const store = await start()
  await append(store, message('a'))
  await store.close()
  const tight = await openSqlite({ path, minFreeBytes: 2 ** 50, logger: noLogger })
  open.push(tight)
  await expect(append(tight, message('b'))).rejects.toMatchObject({ kind: 'full' })
  expect(await tight.apply({ op: 'update', id: 'a', set: { state: 'delivered' }, at: NOW })).toMatchObject({
    status: 'done',
  })
})

test('a disk without enough free space: new webhooks do not block what settles or makes room', async () => {
  const store = await start()
  for (const id of ['a', 'b']) await append(store, message(id))
  await store.close()
  const tight = await openSqlite({ path, minFreeBytes: 2 ** 50, logger: noLogger })
  open.push(tight)
  const together = [
    append(tight, message('c')),
    tight.apply({ op: 'update', id: 'a', set: { state: 'delivered' }, at: NOW }),
    tight.apply({ op: 'part', id: 'd', n: 1, bytes: bytes('part') }),
    tight.apply({ op: 'drop', id: 'b' }),
  ]
  const ended = await Promise.all(together.map(each => each.catch(({ kind }: { kind: string }) => kind)))
  const dropped = { state: 'waiting', reason: '' }
  expect(ended).toEqual(['full', { status: 'done', id: 'a' }, 'full', { status: 'done', id: 'b', dropped }])
  expect(tight.stats().open).toBe(true)
})

const isRoot = process.getuid?.() === 0

test.runIf(isRoot && process.platform === 'linux')(
  'a disk that fills up: full, nothing is lost, and it works again',
  async () => {
    const disk = join(folder, 'disk')
    mkdirSync(disk)
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', disk]).status !== 0) return
    try {
      const at = join(disk, 'inbox.db')
      const store = await start(at)
      const kept: string[] = []
      let refused: unknown
      for (let i = 0; i < 100 && refused === undefined; i++) {
        const rest = new Uint8Array(64 * 1024).fill(i)
        await store.apply({ op: 'append', message: message(`m${i}`), head: bytes('{}'), rest, at: NOW }).then(
          ({ id }) => kept.push(id),
          (error: unknown) => (refused = error),
        )
      }
      expect(refused).toMatchObject({ kind: 'full' })
      await store.apply({ op: 'drop', id: kept.shift()! })
      await append(store, message('small'))
      kept.push('small')
      await store.close()
      open.splice(open.indexOf(store), 1)
      const again = await start(at)
      expect((await again.list({ limit: 999 })).map(({ id }) => id).reverse()).toEqual(kept)
      await again.close()
      open.splice(open.indexOf(again), 1)
      const copy = join(folder, 'copy.db')
      // With no room left, closing could not move the log into the file.
      for (const end of ['', '-wal']) if (existsSync(at + end)) copyFileSync(at + end, copy + end)
      const checked = new DatabaseSync(copy).prepare('PRAGMA integrity_check').get()
      expect(checked).toEqual({ integrity_check: 'ok' })
    } finally {
      spawnSync('umount', ['-l', disk])
    }
  },
)

test.runIf(isRoot && process.platform === 'linux')(
  'a file deleted with no room for a copy: offline, nothing is left behind, and it is set aside once there is room',
  async () => {
    const disk = join(folder, 'disk')
    mkdirSync(disk)
    const mount = (options: string) => spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', disk]).status
    if (mount('size=14m') !== 0) return
    try {
      const store = await start(join(disk, 'inbox.db'))
      const rest = new Uint8Array(512 * 1024)
      for (let i = 0; i < 16; i++)
        await store.apply({ op: 'append', message: message(`m${i}`), head: bytes('{}'), rest, at: NOW })
      for (const name of readdirSync(disk)) rmSync(join(disk, name))
      await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
      await until(() => store.stats().problem === 'database or disk is full' && readdirSync(disk).length === 0)
      expect(mount('remount,size=60m')).toBe(0)
      await until(() => store.stats().open)
      const copy = await start(store.stats().setAside)
      expect(contentsOf(copy)).toMatchObject({ counts: [{ runtime: 'demo', messages: 16 }] })
      for (const one of open.splice(0)) await one.close()
    } finally {
      spawnSync('umount', ['-l', disk])
    }
  },
)

const KILLS = long ? 200 : 20

test('kill -9 at any moment: what was reported as stored is there', {
  tags: ['slow'],
  ...(long ? { timeout: KILLS * 15_000 } : {}),
}, async () => {
  const program = resolve(import.meta.dirname, 'appender.ts')
  const said: string[] = []
  for (let run = 0; run < KILLS; run++) {
    const child = spawn(process.execPath, [program, path, `${run}`], { stdio: ['ignore', 'pipe', 'inherit'] })
    let text = ''
    child.stdout.on('data', chunk => {
      text += chunk
      // Somewhere in the middle of what follows.
      if (text.length > 2000 + Math.random() * 20_000) child.kill('SIGKILL')
    })
    await once(child, 'close')
    const lines = text.split('\n')
    lines.pop()
    said.push(...lines)
  }
  expect(said.length).toBeGreaterThan(KILLS * 20)
  const store = await start()
  expect(store.stats().setAside).toBeUndefined()
  const there = new Set((await store.list({ limit: 1_000_000 })).map(({ id }) => id))
  expect(said.filter(id => !there.has(id))).toEqual([])
  await store.close()
  const file = new DatabaseSync(path)
  expect(file.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
  file.close()
})

test.runIf(!isRoot)('a file that is not writable: the start fails', async () => {
  chmodSync(folder, 0o500)
  await expect(start()).rejects.toThrow('EACCES')
  chmodSync(folder, 0o700)
})
