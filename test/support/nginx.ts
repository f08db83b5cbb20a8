import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { nginxConfig } from '../../cli/demo/nginx.ts'
import { program } from './needs.ts'
import { freePort, type ProxyProgram, startProxyProgram } from './proxy-program.ts'
import type { Secrets } from './secrets.ts'

/** A real nginx with TLS in front of a router service, configured as `docs/ingress.md` says. */
export async function startNginx(router: string, secrets: Secrets): Promise<ProxyProgram> {
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
export async function runNginx(folder: string, config: (port: number) => string): Promise<ProxyProgram> {
  const port = await freePort()
  const path = join(folder, 'nginx.conf')
  await writeFile(path, config(port))
  return startProxyProgram(program('nginx'), ['-p', folder, '-e', 'stderr', '-c', path], port)
}
