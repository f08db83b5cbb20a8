import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nginxConfig } from '../../cli/demo/nginx.ts'
import { program } from './needs.ts'
import type { Secrets } from './secrets.ts'

export interface Nginx {
  readonly port: number
  stop(): Promise<void>
}

/** A real nginx with TLS in front of a router service, configured as `docs/ingress.md` says. */
export async function startNginx(router: string, secrets: Secrets): Promise<Nginx> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-nginx-'))
  const at = (name: string) => join(folder, name)
  await writeFile(at('ca.pem'), secrets.ca)
  await writeFile(at('server.pem'), secrets.server.cert)
  await writeFile(at('server-key.pem'), secrets.server.key, { mode: 0o600 })
  const files = { certificate: at('server.pem'), key: at('server-key.pem'), ca: at('ca.pem') }
  const nginx = await runNginx(folder, port => nginxConfig({ folder, port, router, ...files }))
  const stop = async () => {
    await nginx.stop()
    await rm(folder, { recursive: true, force: true })
  }
  return { port: nginx.port, stop }
}

/** nginx with the configuration that `config` makes for its port; its files lie in `folder`. */
export async function runNginx(folder: string, config: (port: number) => string): Promise<Nginx> {
  const port = await freePort()
  const path = join(folder, 'nginx.conf')
  await writeFile(path, config(port))
  const child = spawn(program('nginx'), ['-p', folder, '-e', 'stderr', '-c', path], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  child.stderr.on('data', text => {
    said = (said + text).slice(-2000)
  })
  await untilOpen(port, child).catch(error => {
    throw new Error(`${error.message}: ${said}`)
  })
  const stop = async () => {
    const gone = once(child, 'exit')
    if (child.exitCode === null) child.kill('SIGTERM')
    await gone
  }
  return { port, stop }
}

/** nginx cannot be given port 0. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** nginx does not say when it listens. */
async function untilOpen(port: number, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`nginx ended with ${child.exitCode}`)
    const socket = connect(port, '127.0.0.1')
    const opened = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false)
    socket.destroy()
    if (opened) return
  }
}
