/** A service whose log nobody reads any more still serves and ends. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, get } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, afterEach, describe, expect, test } from 'vitest'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-stderr-'))
const routes = join(folder, 'routes.yaml')
let child: ChildProcess | undefined
afterEach(() => child?.kill('SIGKILL'))
afterAll(() => rmSync(folder, { recursive: true }))

async function startRouter(access: string): Promise<number> {
  writeFileSync(routes, 'routes:\n  - { name: ok, match: { path: / }, answer: { status: 503, body: no } }\n')
  const args = [
    'router',
    '--listen',
    '127.0.0.1:0',
    '--routes',
    routes,
    '--admin.listen',
    'off',
    '--log.access',
    access,
  ]
  child = spawn(process.execPath, ['bin/sallyport.js', ...args], { stdio: ['ignore', 'ignore', 'pipe'] })
  const lines = createInterface(child.stderr!)
  for await (const line of lines) {
    const { msg, address } = JSON.parse(line) as { msg: string; address: string }
    if (msg === 'listening') return Number(address.split(':').at(-1))
  }
  throw new Error('it ended at once')
}

/** More than a pipe holds, and all that the log keeps. */
async function ask(port: number, times: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 10 })
  const path = `/${'x'.repeat(4_000)}`
  const one = async () => {
    const [response] = await once(get({ port, path, agent }), 'response')
    await once(response.resume(), 'end')
  }
  await Promise.all(Array.from({ length: times }, one))
  agent.destroy()
}

test('a reader that paused learns how many lines it missed, and where', {
  tags: ['slow'],
}, async () => {
  const port = await startRouter('all')
  child!.stderr!.pause()
  const requests = 3000
  for (let round = 0; round < requests / 100; round++) await ask(port, 100)
  let reported = 0
  let read = 0
  const lines = createInterface(child!.stderr!)
  const ended = once(lines, 'close')
  lines.on('line', line => {
    const { msg, lines: dropped, path } = JSON.parse(line) as { msg: string; lines?: number; path?: string }
    if (path !== undefined) read++
    if (dropped === undefined) return
    expect(msg).toBe('lines were dropped here: nothing was reading the log')
    reported += dropped
    child!.kill('SIGTERM')
  })
  await ended
  expect(reported).toBeGreaterThan(0)
  expect(read + reported).toBe(requests)
})

describe.each(['all', 'errors'])('a service serves, and ends at SIGTERM, while its log of %s is', access => {
  test.each([
    ['read by nobody', 0, () => child!.stderr!.destroy()],
    ['read by nobody, while there is something to log', 20, () => child!.stderr!.destroy()],
    ['blocked by its reader', 400, () => child!.stderr!.pause()],
  ])('%s', async (_, requests, leave) => {
    const port = await startRouter(access)
    leave()
    await ask(port, requests)
    child!.kill('SIGTERM')
    expect(await once(child!, 'exit')).toEqual([0, null])
  })
})
