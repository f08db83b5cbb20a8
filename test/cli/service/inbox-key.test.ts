/** Clients of one runtime may share a machine, and its key file. */
import { generateKeyPairSync } from 'node:crypto'
import { mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { loadInboxKeys } from '../../../cli/service/inbox-key.ts'

const ROUNDS = 40
const CLIENTS = 2
const MODULE = new URL('../../../cli/service/inbox-key.ts', import.meta.url).href

/** All begin each round at the same instant. */
const CLIENT = `
  const { parentPort, workerData: { folder, shared } } = require('node:worker_threads')
  import(${JSON.stringify(MODULE)}).then(({ loadInboxKeys }) => {
    const arrived = new Int32Array(shared)
    const found = []
    for (let round = 0; round < arrived.length; round++) {
      Atomics.add(arrived, round, 1)
      Atomics.notify(arrived, round)
      for (let count; (count = Atomics.load(arrived, round)) < ${CLIENTS}; ) Atomics.wait(arrived, round, count)
      try {
        found.push(loadInboxKeys(folder + '/' + round).join())
      } catch (error) {
        found.push(error.message)
      }
    }
    parentPort.postMessage(found)
  })`

let folder = ''
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-keys-'))
})
afterEach(() => rm(folder, { recursive: true }))

test('clients that start at the same instant get the same key, and leave nothing else behind', async () => {
  const shared = new SharedArrayBuffer(4 * ROUNDS)
  const clients = Array.from({ length: CLIENTS }, () => {
    const worker = new Worker(CLIENT, { eval: true, workerData: { folder, shared } })
    return new Promise<string[]>((resolve, reject) => worker.on('message', resolve).on('error', reject))
  })
  const [one, other] = await Promise.all(clients)
  expect(one).toEqual(other)
  expect(one!.every(text => text.startsWith('-----BEGIN PRIVATE KEY-----'))).toBe(true)
  expect(await readdir(folder)).toHaveLength(ROUNDS)
  expect((await stat(join(folder, '0'))).mode & 0o777).toBe(0o600)
})

test('a link that leads nowhere is explained, and not replaced', async () => {
  const path = join(folder, 'link')
  await symlink(join(folder, 'missing'), path)
  expect(() => loadInboxKeys(path)).toThrow(`--inbox.key.file ${path}: no such file`)
  expect(await readdir(folder)).toEqual(['link'])
})

test.each([
  ['with one dash too few', (key: string) => key.replace('KEY-----', 'KEY----')],
  ['without its end', (key: string) => key.replace(/-----END.*\n/, '')],
  ['that is encrypted', (key: string) => key.replaceAll('PRIVATE', 'ENCRYPTED PRIVATE')],
])('a key %s is never replaced by another one in the file', async (_, spoil) => {
  const [one, other] = [1, 2].map(() =>
    generateKeyPairSync('x25519').privateKey.export({ format: 'pem', type: 'pkcs8' }),
  )
  const path = join(folder, 'keys.pem')
  await writeFile(path, `${one}${other}`)
  expect(loadInboxKeys(path).map(key => `${key}\n`)).toEqual([one, other])
  for (const text of [`${spoil(String(one))}${other}`, `${other}${spoil(String(one))}`]) {
    await writeFile(path, text)
    expect(() => loadInboxKeys(path)).toThrow('has a private key that is cut, encrypted or not PEM')
  }
})
