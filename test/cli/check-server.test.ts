/** `sallyport check server`: what it needs besides files, each probe against the fault that it reports. */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer as createTcp } from 'node:net'
import { resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { needs } from '../support/needs.ts'
import { freePort } from '../support/proxy-program.ts'
import { DIRECTORY_RIGHTS, Redis } from '../support/redis.ts'
import { until } from '../support/until.ts'
import { useMachine } from './machine.ts'
import { sallyport } from './run.ts'

interface Found {
  code: string
  status: string
  what: string
  found: string
}

const machine = useMachine()
const { file } = machine
const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

const BASE = () => machine.serverArgs().slice(1)

async function check(...more: string[]) {
  const { code, out } = await sallyport(['check', 'server', '--json', ...BASE(), ...more])
  const { probes } = JSON.parse(out) as { probes: Found[] }
  return { code, of: (...codes: string[]) => probes.filter(probe => codes.includes(probe.code)) }
}

const statuses = (probes: Found[]) => probes.map(({ code, status }) => `${code} ${status}`)

describe.runIf(needs('redis'))('Redis', () => {
  const password = 'a-password-of-this-test'
  const reach = (redis: Redis) => {
    writeFileSync(file('password'), password, { mode: 0o600 })
    return ['--directory', redis.url, '--directory.user', 'poor', '--directory.password.file', file('password')]
  }
  const start = async (rights: string) => {
    const redis = await Redis.start({ user: { name: 'poor', password, rights } })
    stops.push(() => redis.stop())
    return redis
  }

  test('with all rights', async () => {
    const { code, of } = await check(...reach(await start(DIRECTORY_RIGHTS)))
    expect(statuses(of('directory', 'directory-rights'))).toEqual(['directory ok', 'directory-rights ok'])
    expect(code).toBe(0)
  })

  test('behind the first of two hosts, which is off', async () => {
    const redis = await start(DIRECTORY_RIGHTS)
    const off = createTcp(socket => socket.on('error', () => {}).resume())
    await once(off.listen(0, '127.0.0.1'), 'listening')
    stops.push(() => off.close())
    const { port } = off.address() as AddressInfo
    const { of } = await check(...reach(redis).with(1, `redis://127.0.0.1:${port},127.0.0.1:${redis.port}`))
    expect(statuses(of('directory', 'directory-rights'))).toEqual(['directory ok', 'directory-rights ok'])
  })

  test.each([
    ['hset', 'HSET {sallyport}:replicas'],
    ['publish', 'PUBLISH sallyport:changes'],
    ['time', 'TIME'],
    ['pexpire', 'PEXPIRE {sallyport}:replicas'],
    ['subscribe', 'subscribe'],
    ['evalsha', 'evalsha'],
    ['script|load', 'script'],
  ])('without the right to %s: that one is named, and no other', async (command, named) => {
    const { code, of } = await check(...reach(await start(DIRECTORY_RIGHTS.replace(`+${command}`, ''))))
    const lacking = of('directory-rights').filter(({ status }) => status === 'fail')
    const others =
      command === 'publish' ? ['sallyport:changes', 'sallyport:operators', 'sallyport:revocations'] : [named]
    expect(lacking).toHaveLength(others.length)
    expect(lacking.every(({ found }) => found.toLowerCase().includes(command.split('|')[0]!))).toBe(true)
    expect(lacking[0]!.found).toContain(named)
    expect(code).toBe(5)
  })

  test('without a right, the server does not start either, and says so in one line', async () => {
    const redis = await start(DIRECTORY_RIGHTS.replace('+hset', ''))
    const { code, notes } = await sallyport(['server', ...BASE(), ...reach(redis)])
    expect(notes).toMatch(/^sallyport: --directory: the user of Redis has no permission to HSET \{sallyport\}:\S+ *\n$/)
    expect(code).toBe(3)
  })

  test("another channel's Redis, a wrong password, and no listener", async () => {
    const redis = await start(DIRECTORY_RIGHTS.replace('&sallyport:*', '&sallyport:changes'))
    const channels = (await check(...reach(redis))).of('directory-rights').map(({ found }) => found)
    expect(channels.every(found => /sallyport:(operators|revocations)$/.test(found))).toBe(true)
    expect(channels.length).toBeGreaterThan(1)
    const flags = reach(redis)
    writeFileSync(file('password'), 'another-one')
    const wrong = await check(...flags)
    expect(statuses(wrong.of('directory', 'directory-rights'))).toEqual(['directory fail', 'directory-rights skip'])
    expect(wrong.of('directory')[0]!.found).toContain('WRONGPASS')
    await redis.kill()
    const gone = await check(...reach(redis))
    expect(gone.of('directory')[0]!.found).toContain('ECONNREFUSED')
  })

  test('that is full, and says so', async () => {
    const redis = await Redis.start({ lines: ['maxmemory 1'] })
    stops.push(() => redis.stop())
    const { code, of } = await check('--directory', redis.url)
    expect([statuses(of('directory', 'directory-rights')), code]).toEqual([
      ['directory fail', 'directory-rights ok'],
      5,
    ])
    expect(of('directory')[0]!.found).toMatch(/^OOM /)
    await redis.command('CONFIG', 'SET', 'maxmemory', '0')
    expect((await check('--directory', redis.url)).code).toBe(0)
    expect(await redis.command('KEYS', '*')).toEqual([])
  })

  describe('other replicas', { tags: ['slow'] }, () => {
    let redis: Redis
    beforeAll(async () => {
      redis = await Redis.start()
      await sallyport(['certs', 'replica', '--ca', file(''), '--out', file('')])
    })
    afterAll(() => redis.stop())

    const peer = (port: number | string, cert = 'replica') => [
      ...['--directory', redis.url, '--peer.listen', `127.0.0.1:${port}`, '--peer.tls.ca', file('ca.pem')],
      ...['--peer.tls.cert', file(`${cert}.pem`), '--peer.tls.key', file(`${cert}-key.pem`)],
    ]

    test('one that runs, one address with something else, and one that does not answer', async () => {
      const other = machine.start(machine.serverArgs(...peer(await freePort()), '--replica', 'other'))
      await other.address('public')
      const names = async () => Object.keys((await redis.command('HGETALL', '{sallyport}:replicas')) as object)
      await until(async () => (await names()).some(name => name.startsWith('other')))
      const before = await names()
      const well = await check(...peer('0', 'replica'), '--peer.advertise', '127.0.0.1:1')
      expect(statuses(well.of('peer'))).toEqual(['peer ok'])
      expect(well.of('peer')[0]!.what).toMatch(/^replica other\S* at /)
      expect(await names()).toEqual(before)
      // It is refused a moment after its handshake.
      const foreign = await check(...peer('0', 'server'), '--peer.advertise', '127.0.0.1:1')
      expect(statuses(foreign.of('peer'))).toEqual(['peer fail'])
      await other.end('SIGKILL')
      const dead = await check(...peer('0', 'replica'), '--peer.advertise', '127.0.0.1:1')
      expect(dead.of('peer')[0]!.found).toContain('ECONNREFUSED')
      const silent = createTcp(socket => void stops.push(() => socket.destroy())).listen(0, '127.0.0.1')
      await once(silent, 'listening')
      stops.push(() => silent.close())
      const ends = String(Date.now() + 60_000)
      const at = `127.0.0.1:${(silent.address() as AddressInfo).port}`
      await redis.command('DEL', '{sallyport}:replicas')
      await redis.command('HSET', '{sallyport}:replicas', 'silent', `${ends} ${at}`, 'ended', `1 ${at}`)
      const none = await check(...peer('0', 'replica'), '--peer.advertise', '127.0.0.1:1')
      expect(none.of('peer').map(({ found }) => found)).toEqual(['no answer within 5 s'])
    })
  })
})

describe('the inbox', () => {
  const inbox = (name = 'data/inbox.db') => ['--inbox', `sqlite:${file(name)}`]
  const CODES = ['inbox-disk', 'inbox-room'] as const

  test('with room, without room, and in a folder that is not writable; no file is left behind, or lost', async () => {
    mkdirSync(file('data'), { recursive: true })
    writeFileSync(file('data/inbox.db.check'), "somebody's own")
    const well = await check(...inbox(), '--inbox.disk-free', '1KiB')
    // A disk that others use is slow, too.
    expect(statuses(well.of(...CODES))).toEqual([expect.stringMatching(/ (ok|warn)$/), 'inbox-room ok'])
    expect(well.of('inbox-disk')[0]!.found).toMatch(/^\d+\.\d ms to sync 4 KiB/)
    expect(readdirSync(file('data'))).toEqual(['inbox.db.check'])
    rmSync(file('data/inbox.db.check'))
    const full = await check(...inbox(), '--inbox.disk-free', '8000GiB')
    expect([statuses(full.of('inbox-room')), full.code]).toEqual([['inbox-room fail'], 5])
    const none = await check('--inbox', 'sqlite:/proc/inbox.db')
    expect(statuses(none.of(...CODES))).toEqual(['inbox-disk fail', 'inbox-room skip'])
    expect(none.of('inbox-disk')[0]!.found).toMatch(/ENOENT|EACCES|EPERM/)
  })

  test("another user's file in a folder of ours", async context => {
    mkdirSync(file('data'), { recursive: true })
    const path = file('data/theirs.db')
    writeFileSync(path, '', { mode: 0o400 })
    if (process.getuid?.() === 0) {
      // Root may write to any file that is not immutable.
      if (spawnSync('chattr', ['+i', path]).status !== 0) context.skip()
      stops.push(() => spawnSync('chattr', ['-i', path]))
    }
    stops.unshift(() => rmSync(path))
    const { code, of } = await check(...inbox('data/theirs.db'))
    expect([statuses(of(...CODES)), code]).toEqual([['inbox-disk fail', 'inbox-room skip'], 5])
    expect(of('inbox-disk')[0]!.found).toMatch(/EACCES|EPERM/)
    expect(readdirSync(file('data'))).toEqual(['theirs.db'])
  })

  test.runIf(needs('gcc'))('on a disk that fails to sync, and on a slow one', { tags: ['slow'] }, async () => {
    mkdirSync(file('data'), { recursive: true })
    const library = file('failing-disk.so')
    const source = resolve(import.meta.dirname, '../support/failing-disk.c')
    expect(spawnSync('gcc', ['-shared', '-fPIC', '-o', library, source, '-ldl']).status).toBe(0)
    const on = (how: string) => {
      writeFileSync(file('failing'), how)
      const { stdout } = spawnSync(
        process.execPath,
        ['bin/sallyport.js', 'check', 'server', '--json', ...BASE(), ...inbox()],
        {
          env: { ...process.env, LD_PRELOAD: library, FAILING_DISK: file('failing') },
          encoding: 'utf8',
        },
      )
      rmSync(file('failing'))
      return (JSON.parse(stdout) as { probes: Found[] }).probes.find(({ code }) => code === 'inbox-disk')!
    }
    const broken = on('sync')
    expect([broken.status, broken.found]).toEqual(['fail', expect.stringContaining('EIO') as unknown])
    expect(on('late').status).toBe('warn')
    expect(readdirSync(file('data'))).toEqual([])
  })
})
