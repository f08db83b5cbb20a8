/** security.md, E16: a caller that vanishes silently is found by TCP keep-alive, on every socket that we accept. */
import { globSync, readFileSync } from 'node:fs'
import { createConnection } from 'node:net'
import { resolve } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { listenHealth } from '../../admin/index.ts'
import type { AdminSource } from '../../admin/page.ts'
import { createServer, type ServerOptions } from '../../server/index.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const CONTROL_NAME = 'connect.example.com'
const ESTABLISHED = '01'
/** A timer that runs with nothing to send is the keep-alive timer. */
const KEEP_ALIVE_TIMER = '02'
const LISTENERS = /\b(?:createServer|createNetServer|createTlsServer)\((?!\))/

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** The kernel's timers for the connections that this port has accepted. */
function timersAt(port: number): string[] {
  const at = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1)
  return rows
    .map(row => row.trim().split(/\s+/))
    .filter(([, local, , state]) => local!.endsWith(at) && state === ESTABLISHED)
    .map(([, , , , , timer]) => timer!.slice(0, 2))
}

let secrets: Secrets
async function startEdgeServer(options: (secrets: Secrets) => Partial<ServerOptions>) {
  secrets = await makeSecrets()
  const server = await createServer({
    control: 'off',
    domains: [DOMAIN],
    auth: { jwks: secrets.jwks },
    ...options(secrets),
  })
  open.push(() => server.close({ graceMs: 0 }))
  return server
}

const health = () => listenHealth({ host: '127.0.0.1', port: 0, source: {} as AdminSource })
const DOORS: [name: string, servername: string | undefined, start: () => Promise<number>][] = [
  [
    'the edge, plain',
    undefined,
    async () => (await startEdgeServer(() => ({ public: { port: 0 } }))).publicAddress!.port,
  ],
  [
    'the edge, TLS',
    `a.${DOMAIN}`,
    async () => (await startEdgeServer(({ server: tls }) => ({ public: { port: 0, tls } }))).publicAddress!.port,
  ],
  [
    'the control endpoint',
    'localhost',
    async () => (await startEdgeServer(({ server: tls }) => ({ control: { port: 0, tls } }))).controlAddress!.port,
  ],
  ...[`a.${DOMAIN}`, CONTROL_NAME].map((name): (typeof DOORS)[number] => [
    `one address for both, ${name}`,
    name,
    async () =>
      (
        await startEdgeServer(({ server: tls }) => ({
          public: { port: 0, tls },
          control: { tls, hostName: CONTROL_NAME },
        }))
      ).publicAddress!.port,
  ]),
  [
    'health',
    undefined,
    async () => {
      const listener = await health()
      open.push(() => listener.close())
      return listener.address.port
    },
  ],
]

describe.runIf(process.platform === 'linux')('E16: silence', () => {
  test.each(DOORS)('E16: %s', async (_name, servername, startDoor) => {
    const port = await startDoor()
    const wire = createConnection(port, '127.0.0.1')
    const caller = servername ? connectTls({ socket: wire, servername, rejectUnauthorized: false }) : wire
    open.push(() => wire.destroy())
    for (const socket of [wire, caller]) socket.on('error', () => {})
    await new Promise(resolve => caller.once(servername ? 'secureConnect' : 'connect', resolve))
    await eventually(() => expect(timersAt(port)).toEqual([KEEP_ALIVE_TIMER]))
  })

  test('E16: every listener sets it', () => {
    const files = globSync('{admin,client,protocol,router,server}/**/*.ts', { cwd: ROOT })
    const sources = files.map(file => [file, readFileSync(resolve(ROOT, file), 'utf8')] as const)
    const listening = sources.filter(([, text]) => LISTENERS.test(text.replace(/^\s*\/?\*.*$/gm, '')))
    const without = listening.filter(([, text]) => !/\.\.\.KEEP_ALIVE/.test(text)).map(([file]) => file)
    expect(listening.length).toBeGreaterThan(4)
    expect(without.filter(file => file !== 'server/index.ts')).toEqual([])
  })
})
