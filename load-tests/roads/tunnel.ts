/** Our own road: server and client as deployed, over TLS and WSS, the router embedded in the client or beside it. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Started, start } from '../lib/processes.ts'
import type { Road } from './road.ts'

const BIN = fileURLToPath(new URL('../../bin/sallyport.js', import.meta.url))
const DOMAIN = 'tunnels.localhost'

const sallyport = (...args: string[]) =>
  execFileSync(process.execPath, [BIN, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })

/** Starts a `sallyport` command and waits for the log lines named; answers the addresses that it logged. */
async function command(
  name: string,
  args: string[],
  until: string[],
): Promise<Started & { addresses: Map<string, string> }> {
  const addresses = new Map<string, string>()
  const waiting = new Set(until)
  const started = await start({
    name,
    command: process.execPath,
    args: [...profileFlags(name), BIN, ...args, '--log.format', 'json', '--admin.listen', 'off'],
    ready: line => {
      if (!line.startsWith('{')) return false
      const entry = JSON.parse(line) as { msg?: string; name?: string; address?: string }
      if (entry.msg === 'listening' && entry.name && entry.address) addresses.set(entry.name, entry.address)
      waiting.delete(entry.msg === 'listening' ? entry.name! : (entry.msg ?? ''))
      return waiting.size === 0
    },
  })
  return { ...started, addresses }
}

/** With SALLYPORT_BENCH_PROFILE=DIR each of our processes writes a .cpuprofile there when it ends. */
function profileFlags(name: string): string[] {
  const folder = process.env.SALLYPORT_BENCH_PROFILE
  return folder
    ? ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-name=${name}-${process.pid}-${Date.now()}.cpuprofile`]
    : []
}

export async function tunnelRoad(
  upstreamPort: number,
  options: { router: 'embedded' | 'service'; edgeTls?: boolean },
): Promise<Road> {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-bench-'))
  sallyport(
    'certs',
    'init',
    '--out',
    folder,
    '--host',
    DOMAIN,
    '--host',
    `*.${DOMAIN}`,
    '--host',
    'localhost',
    '--host',
    '127.0.0.1',
  )
  sallyport('keys', 'create', '--out', join(folder, 'keys'))
  const token = join(folder, 'token')
  const { writeFileSync } = await import('node:fs')
  writeFileSync(
    token,
    sallyport('token', 'create', '--key', join(folder, 'keys/private.jwk'), '--runtime', 'bench', '--ttl', '2h'),
    { mode: 0o600 },
  )
  const tls = (prefix: string) => [
    `--${prefix}.tls.cert`,
    join(folder, 'server.pem'),
    `--${prefix}.tls.key`,
    join(folder, 'server-key.pem'),
  ]

  const parts: Started[] = []
  const stop = async () => {
    for (const part of parts.reverse()) await part.stop()
  }
  try {
    const server = await command(
      'server',
      [
        'server',
        '--public.listen',
        '127.0.0.1:0',
        '--control.listen',
        '127.0.0.1:0',
        ...tls('control'),
        ...(options.edgeTls ? tls('public') : []),
        '--domain',
        DOMAIN,
        '--auth.jwks.file',
        join(folder, 'keys/jwks.json'),
      ],
      ['public', 'control'],
    )
    parts.push(server)
    let target = `http://127.0.0.1:${upstreamPort}`
    if (options.router === 'service') {
      const routes = join(folder, 'routes.yaml')
      writeFileSync(routes, `routes:\n  - name: all\n    match: { path: / }\n    target: ${target}\n`)
      const router = await command('router', ['router', '--listen', '127.0.0.1:0', '--routes', routes], ['router'])
      parts.push(router)
      target = `http://${router.addresses.get('router')}`
    }
    const client = await command(
      'client',
      [
        'client',
        '--server',
        `wss://${server.addresses.get('control')}`,
        '--ca',
        join(folder, 'ca.pem'),
        '--token.file',
        token,
        '--target',
        target,
      ],
      ['connected'],
    )
    parts.push(client)
    return {
      name: `tunnel, router ${options.router}${options.edgeTls ? ', TLS edge' : ''}`,
      url: `${options.edgeTls ? 'https' : 'http'}://${server.addresses.get('public')}`,
      headers: { host: `bench.${DOMAIN}` },
      pids: parts.map(part => part.pid),
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}
