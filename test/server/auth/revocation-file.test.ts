import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { NextFile } from '../../../server/auth/next-file.ts'
import { RevocationFile } from '../../../server/auth/revocation-file.ts'
import { parseRevocations } from '../../../server/auth/revocation-list.ts'
import type { Revocation } from '../../../server/auth/revocations.ts'
import { needs } from '../../support/needs.ts'

const GROUP = 65_532

let folder: string
let file: string
const opened: RevocationFile[] = []
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-revocations-'))
  file = join(folder, 'revoked.json')
  writeFileSync(file, '', { mode: 0o640 })
})
afterEach(async () => {
  for (const one of opened.splice(0)) one.close()
  await rm(folder, { recursive: true })
})

async function open(
  onList: (rules: readonly Revocation[]) => void = () => {},
  logger = noLogger,
): Promise<RevocationFile> {
  const list = new RevocationFile(file, logger, onList, () => 0)
  opened.push(list)
  await list.start()
  return list
}

const idsInFile = () => parseRevocations(readFileSync(file, 'utf8')).map(({ tokenId }) => tokenId)

test('A9: when several servers add to one file at once, it ends up with everything', async () => {
  const lists = await Promise.all([open(), open(), open()])
  const ids = Array.from({ length: 30 }, (_, i) => `${i}`)
  await Promise.all(ids.map((tokenId, i) => lists[i % lists.length]!.add({ tokenId })))
  expect(idsInFile().sort()).toEqual(ids.sort())
  expect(readdirSync(folder)).toEqual(['revoked.json'])
  expect(statSync(file).mode & 0o777).toBe(0o640)
})

test('a rule that is added while another one is written is kept, in the file and in force', async () => {
  let inForce: readonly Revocation[] = []
  const list = await open(rules => {
    inForce = rules
  })
  const ids = Array.from({ length: 40 }, (_, i) => `${i}`)
  const added: Promise<void>[] = []
  for (const tokenId of ids) {
    added.push(list.add({ tokenId }))
    await pause(1)
  }
  await Promise.all(added)
  expect(idsInFile()).toEqual(ids)
  expect(inForce.map(({ tokenId }) => tokenId)).toEqual(ids)
  expect(list.unwritten).toEqual([])
})

test('a lock left behind by a killed server is waited for, then removed', { tags: ['slow'] }, async () => {
  writeFileSync(`${file}.next`, 'half of')
  const list = await open()
  await list.add({ tokenId: 'a' })
  expect(idsInFile()).toEqual(['a'])
  expect(readdirSync(folder)).toEqual(['revoked.json'])
})

test('a rule that cannot be written is an error, applies anyway, and is written with the next one', async () => {
  const list = await open()
  await rm(file)
  await expect(list.add({ tokenId: 'a' })).rejects.toThrow('ENOENT')
  writeFileSync(file, '')
  await list.add({ tokenId: 'b' })
  expect(idsInFile()).toEqual(['a', 'b'])
})

test('a list that would not fit when it is written anew stays as it is', async () => {
  const jti = 'x'.repeat(240)
  // Without line breaks it is shorter than what we write.
  const text = `{"revocations":[${Array.from({ length: 8220 }, (_, i) => `{"jti":"${jti}${1000 + i}"}`).join()}]}`
  writeFileSync(file, text)
  const list = await open()
  await expect(list.add({ tokenId: 'a' })).rejects.toThrow(RangeError)
  expect(readFileSync(file, 'utf8')).toBe(text)
})

test('others that never stop changing a file are not waited for for ever', async () => {
  writeFileSync(`${file}.next`, 'half of')
  let now = 0
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 31_000))
  await expect(NextFile.open(file)).rejects.toThrow('other processes keep changing the file')
})

test('a file that is emptied, by a copy over it or a full disk, takes back no rule', async () => {
  writeFileSync(file, '{ "revocations": [{ "jti": "a" }] }')
  const said = Promise.withResolvers<unknown>()
  const logger = { ...noLogger, error: (fields: object) => said.resolve((fields as { err: Error }).err.message) }
  let ids: unknown
  const list = await open(rules => {
    ids = rules.map(({ tokenId }) => tokenId)
  }, logger)
  writeFileSync(file, ' \n')
  expect(await said.promise).toMatch(/^it is empty, but had rules before/)
  await expect(list.add({ tokenId: 'b' })).rejects.toThrow('it is empty')
  expect(ids).toEqual(['a'])
  // Somebody who means it says so.
  writeFileSync(file, '{ "revocations": [] }')
  await list.add({ tokenId: 'c' })
  expect([ids, idsInFile()]).toEqual([
    ['b', 'c'],
    ['b', 'c'],
  ])
})

test.runIf(needs('root', 'setpriv')).each([
  ['root', 0, [65_533, GROUP]],
  ['a user of its group', 65_534, [65_534, GROUP]],
])('A9: a file that %s writes still belongs to those who share it', async (_name, user, rights) => {
  for (const path of [folder, file]) chownSync(path, 65_533, GROUP)
  chmodSync(folder, 0o770)
  const program = `
    import { NextFile } from './server/auth/next-file.ts'
    process.setgroups([${GROUP}])
    process.setgid(${user})
    process.setuid(${user})
    const next = await NextFile.open(${JSON.stringify(file)})
    await next.replace('{"revocations":[]}')
    await next.close()`
  // Root may give files away, but not change others' files.
  const command = ['--bounding-set', '-fowner', process.execPath, '--input-type=module-typescript', '--eval', program]
  const writer = spawn('setpriv', command, { stdio: 'inherit' })
  expect(await once(writer, 'exit')).toEqual([0, null])
  const { uid, gid, mode } = statSync(file)
  expect([[uid, gid], mode & 0o777]).toEqual([rights, 0o640])
})

test("a server that is slow to write does not mistake another server's write for its own", {
  tags: ['slow'],
}, async () => {
  const program = `
    import { NextFile } from './server/auth/next-file.ts'
    const next = await NextFile.open(${JSON.stringify(file)})
    console.log('open')
    process.stdin.on('data', () => next.replace('{"revocations":[]}').catch(error => console.log(error.message)).finally(() => process.exit()))`
  const slow = spawn(process.execPath, ['--input-type=module-typescript', '--eval', program])
  await once(slow.stdout, 'data')
  const list = await open()
  await list.add({ tokenId: 'a' })
  const [said] = await Promise.all([once(slow.stdout, 'data'), slow.stdin.write('go')])
  expect(String(said)).toContain('now belongs to another process')
  expect(idsInFile()).toEqual(['a'])
})
