/** A command whose output file cannot be written has failed, and says so. */
import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const FULL = '/dev/full'
const folder = mkdtempSync(join(tmpdir(), 'sallyport-stdout-'))
afterAll(() => rmSync(folder, { recursive: true }))

function run(args: readonly string[], output: string) {
  const descriptor = openSync(output, 'w')
  try {
    const stdio = ['ignore', descriptor, 'pipe'] as const
    const { status, stderr } = spawnSync(process.execPath, ['bin/sallyport.js', ...args], {
      stdio: [...stdio],
      encoding: 'utf8',
    })
    return { status, stderr }
  } finally {
    closeSync(descriptor)
  }
}

const keys = join(folder, 'keys')
const token = ['token', 'create', '--key', join(keys, 'private.jwk'), '--runtime', 'demo']
beforeAll(() => {
  run(['keys', 'create', '--out', keys], join(folder, 'names'))
})

describe.runIf(existsSync(FULL))('a full disk', () => {
  test.each([
    [['--help']],
    [['--version']],
    [token],
    [['config', 'schema', 'server']],
    [['config', 'print', 'server']],
    [['keys', 'create', '--out', join(folder, 'others')]],
    [['certs', 'init', '--out', join(folder, 'certs'), '--host', 'a.example.com']],
  ])('%j fails', args => {
    expect(run(args, FULL)).toEqual({
      status: 1,
      stderr: 'sallyport: cannot write the output: no space is left on the disk\n',
    })
  })
})

test('a file receives the whole output', () => {
  const file = join(folder, 'schema')
  expect(run(['config', 'schema', 'server'], file)).toEqual({ status: 0, stderr: '' })
  expect(JSON.parse(readFileSync(file, 'utf8'))).toHaveProperty('title', 'sallyport server')
})
