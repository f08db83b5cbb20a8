/** `docs/fields.md` against a running server, client and router. */

import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { expect, test } from 'vitest'
import { ADMIN, useMachine } from './machine.ts'

const machine = useMachine()
const { file } = machine

/** Names in the first column of the tables below a heading. */
function named(heading: string): string[] {
  const section = readFileSync('docs/fields.md', 'utf8').split(`${heading}\n`)[1]!.split(/^#/m)[0]!
  const cells = [...section.matchAll(/^\| (`.*?) \|/gm)].map(([, cell]) => cell!)
  return [...cells.join(' ').matchAll(/`(\w+)`/g)].map(([, name]) => name!)
}

const COMMON = named('### All components')
/** Those that only some servers and clients have. */
const ABSENT = ['peers', 'hosts', 'inbox', 'inboxId', 'traceId']

const ADMIN_TOKEN = 'token-of-the-admin-listener'

async function statusOf({ address }: { readonly address?: string }): Promise<Record<string, unknown>> {
  const answer = await fetch(`http://${address}/status`, { headers: { authorization: `Bearer ${ADMIN_TOKEN}` } })
  return (await answer.json()) as Record<string, unknown>
}

test('every field of /status and of an exchange in the log has its row, and every row its field', {
  tags: ['slow'],
}, async () => {
  writeFileSync(file('admin'), ADMIN_TOKEN, { mode: 0o600 })
  writeFileSync(file('routes.yaml'), 'routes: [{ name: all, match: { path: / }, answer: { status: 200 } }]\n')
  const admin = [...ADMIN, '--admin.token.file', file('admin')]
  const tls = ['--public.tls.cert', file('server.pem'), '--public.tls.key', file('server-key.pem')]
  const server = machine.start(machine.serverArgs(...tls, ...admin, '--log.access', 'all', '--tracing', 'recent'))
  const listening = (name: string) => server.line(line => line.msg === 'listening' && line.name === name)
  await machine.writeToken('token', { runtime: 'demo' })
  const control = (await listening('control')).address
  const client = machine.start([
    'client',
    ...['--server', `wss://${control}`, '--ca', file('ca.pem'), '--token.file', file('token')],
    ...['--routes', file('routes.yaml'), ...admin],
  ])
  const router = machine.start(['router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'), ...admin])
  await client.line(line => line.msg === 'this instance is active')

  const address = `https://${(await listening('public')).address}/`
  const call = request(address, { headers: { host: 'demo.tunnels.localhost' }, rejectUnauthorized: false }).end()
  const [response] = await once(call, 'response')
  response.resume()
  const line = await server.line(({ msg }) => msg === 'exchange')
  const ofLine = new Set([...named('## The log'), 'pid', 'hostname'])
  expect(Object.keys(line).filter(name => !ofLine.has(name))).toEqual([])

  for (const [heading, process] of [
    ['### Server', server],
    ['### Client', client],
    ['### Router', router],
  ] as const) {
    const status = await statusOf(await process.line(({ msg, name }) => msg === 'listening' && name === 'admin'))
    const rows = [...COMMON, ...named(heading)].filter(name => !ABSENT.includes(name))
    expect(
      Object.keys(status)
        .filter(name => !ABSENT.includes(name))
        .sort(),
    ).toEqual(rows.sort())
    for (const session of (status.openSessions ?? []) as object[])
      expect(Object.keys(session).sort()).toEqual(named('### A row of `openSessions`').sort())
  }
})
