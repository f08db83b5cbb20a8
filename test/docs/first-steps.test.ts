/**
 * The README's steps to a server and a client, command by command as written, on one machine and with names under
 * `localhost`.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { useShell } from './shell.ts'

const readme = readFileSync('README.md', 'utf8')
const shell = useShell()
const upstream = createServer((_request, response) => response.end('from inside\n')).listen(0, '127.0.0.1')

let port: number

beforeAll(async () => {
  port = await lastingPort()
  if (!upstream.listening) await once(upstream, 'listening')
})
afterAll(() => {
  upstream.close()
})

/** The commands of one numbered step, with this machine's names and ports. */
function step(number: number): string {
  const [text = ''] = readme
    .slice(readme.indexOf(`**${number}. `))
    .split(new RegExp(`\\*\\*${number + 1}\\. |^## `, 'm'))
  const block = [...text.matchAll(/^ {4}(.*)$/gm)].map(([, line]) => line).join('\n')
  const inline = /`((?:curl|sallyport load-test) [^`]*)`/.exec(text)?.[1] ?? ''
  return (block || inline)
    .replaceAll('tunnels.example.com', 'tunnels.localhost')
    .replaceAll('0.0.0.0:443', `127.0.0.1:${port}`)
    .replaceAll(':443', `:${port}`)
    .replaceAll('127.0.0.1:3000', `127.0.0.1:${(upstream.address() as AddressInfo).port}`)
    .replace(/(https:\/\/demo\.tunnels\.localhost)\/?/, `$1:${port}/`)
}

test('a caller reaches the service behind the client', async () => {
  await shell.run(step(1))
  await shell.keep(step(2), '"name":"control"')
  await shell.keep(step(3), 'this instance is active')
  expect(await shell.run(`${step(4)} --silent --show-error --fail`)).toBe('from inside\n')
  expect(await shell.run(`${step(5)} --duration 1s`)).toContain('Small GET requests')
})
