/** The README's way to a server and a client, command by command as it stands, on one machine and with names under `localhost`. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { until } from '../support/until.ts'

const run = promisify(execFile)
const readme = readFileSync('README.md', 'utf8')
const folder = mkdtempSync(join(tmpdir(), 'first-steps-'))
const running: ChildProcess[] = []
const upstream = createServer((_request, response) => response.end('from inside\n')).listen(0, '127.0.0.1')

const clean = Object.entries(process.env).filter(([name]) => !/^SALLYPORT_|_proxy$/i.test(name))
const environment = {
  ...Object.fromEntries(clean),
  PATH: `${join(folder, 'bin')}${delimiter}${process.env.PATH}`,
  SALLYPORT_ADMIN_LISTEN: '127.0.0.1:0',
  SALLYPORT_LOG_FORMAT: 'json',
}
const shell = { cwd: folder, env: environment }

let port: number

beforeAll(async () => {
  port = await lastingPort()
  if (!upstream.listening) await once(upstream, 'listening')
  mkdirSync(join(folder, 'bin'))
  const command = join(folder, 'bin/sallyport')
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${resolve('bin/sallyport.js')}' "$@"\n`)
  chmodSync(command, 0o755)
})

afterAll(async () => {
  for (const child of running) {
    if (child.exitCode !== null || child.signalCode !== null) continue
    child.kill()
    await once(child, 'exit')
  }
  upstream.close()
  rmSync(folder, { recursive: true, force: true })
})

/** The commands of one numbered step, with this machine's names and ports. */
function step(number: number): string {
  const text = readme.slice(readme.indexOf(`**${number}. `)).split(`**${number + 1}. `)[0]!
  const block = [...text.matchAll(/^ {4}(.*)$/gm)].map(([, line]) => line).join('\n')
  const inline = /`(curl [^`]*)`/.exec(text)?.[1] ?? ''
  return (block || inline)
    .replaceAll('tunnels.example.com', 'tunnels.localhost')
    .replaceAll('0.0.0.0:443', `127.0.0.1:${port}`)
    .replaceAll(':443', `:${port}`)
    .replaceAll('127.0.0.1:3000', `127.0.0.1:${(upstream.address() as AddressInfo).port}`)
    .replace(/(https:\/\/demo\.tunnels\.localhost)\//, `$1:${port}/`)
}

/** Starts what a step says in a process of its own, and waits until it has said `word`. */
async function keep(number: number, word: string): Promise<void> {
  const child = spawn('/bin/sh', ['-c', `exec ${step(number)}`], { ...shell, stdio: ['ignore', 'ignore', 'pipe'] })
  running.push(child)
  let said = ''
  child.stderr.setEncoding('utf8').on('data', text => {
    said += text
  })
  await until(() => said.includes(word) || child.exitCode !== null, `step ${number}: ${word}`)
  expect(child.exitCode, said).toBeNull()
}

test('a caller reaches the service behind the client', async () => {
  await run('/bin/sh', ['-ec', step(1)], shell)
  await keep(2, '"name":"control"')
  await keep(3, 'this instance is active')
  expect((await run('/bin/sh', ['-ec', `${step(4)} --silent --show-error --fail`], shell)).stdout).toBe('from inside\n')
}, 60_000)

test('the example of `route test` leads to a target', async () => {
  const routes = /```yaml\n(.*?)```/s.exec(readme)![1]!
  writeFileSync(join(folder, 'routes.yaml'), routes)
  const command = /^ {4}(sallyport route test .*)$/m.exec(readme)![1]!
  const { stdout } = await run('/bin/sh', ['-ec', command], shell)
  expect(stdout).toContain('http://github-eventsource-svc.argo-events.svc.cluster.local:80')
})
