/** Server, client and router service as processes of their own, through the command, as they are deployed. */
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { Part } from '../../cli/demo/parts.ts'
import type { Place } from './caller.ts'
import { DOMAIN, makeSecrets, type Secrets } from './secrets.ts'

/** What `bin/sallyport.js` runs in a checkout, here on the Node that runs the tests. */
export const COMMAND = resolve(import.meta.dirname, '../../cli/main.ts')

/** Nothing on the way to loopback, whatever the developer's own settings are. */
const ENV = { ...process.env, HTTPS_PROXY: '', https_proxy: '' }

export interface Processes {
  readonly server: Part
  readonly client: Part
  readonly router: Part
  /** Runtime `demo` at the public edge. */
  readonly place: Place
  readonly control: string
  /** Where the router service listens. */
  readonly service: string
  readonly secrets: Secrets
  readonly folder: string
  stop(): Promise<void>
}

/** `routes` is the text of the router service's file; `nodeFlags` are Node's own. */
export async function startProcesses(
  routes: string,
  serverFlags: string[] = [],
  nodeFlags: string[] = [],
): Promise<Processes> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-test-'))
  const at = (name: string) => join(folder, name)
  const secrets = await makeSecrets()
  await writeFile(at('ca.pem'), secrets.ca)
  await writeFile(at('server.pem'), secrets.server.cert)
  await writeFile(at('server-key.pem'), secrets.server.key, { mode: 0o600 })
  await writeFile(at('jwks.json'), JSON.stringify(secrets.jwks))
  await writeFile(at('token'), await secrets.token('demo'), { mode: 0o600 })
  await writeFile(at('routes.yaml'), routes)
  const tls = (prefix: string) => [
    `--${prefix}.tls.cert`,
    at('server.pem'),
    `--${prefix}.tls.key`,
    at('server-key.pem'),
  ]
  const parts: Part[] = []
  const start = (name: string, args: string[]) => {
    const part = new Part(name, process.execPath, [...nodeFlags, COMMAND, name, '--admin.listen', 'off', ...args], ENV)
    parts.push(part)
    return part
  }
  const server = start('server', [
    ...['--public.listen', '127.0.0.1:0', ...tls('public'), '--control.listen', '127.0.0.1:0', ...tls('control')],
    ...['--domain', DOMAIN, '--auth.jwks.file', at('jwks.json'), ...serverFlags],
  ])
  const router = start('router', ['--listen', '127.0.0.1:0', '--routes', at('routes.yaml')])
  const [edge, control, service] = await Promise.all([
    server.listening('public'),
    server.listening('control'),
    router.listening('router'),
  ])
  const client = start('client', [
    ...['--server', `wss://${control}`, '--token.file', at('token'), '--ca', at('ca.pem')],
    ...['--target', `http://${service}`],
  ])
  await client.line('session', line => line.msg === 'connected')
  const port = Number(edge.split(':').at(-1))
  const stop = async () => {
    await Promise.all(parts.map(part => part.stop()))
    await rm(folder, { recursive: true, force: true })
  }
  const place = { port, authority: `demo.${DOMAIN}:${port}`, ca: secrets.ca }
  return { server, client, router, place, control: `wss://${control}`, service, secrets, folder, stop }
}

/** Resident bytes of a process: now, and at most since {@link resetPeak}. Linux only. */
export function residentBytes(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const kib = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1] ?? 0)
  return { now: kib('VmRSS') * 1024, peak: kib('VmHWM') * 1024 }
}

export function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
}
