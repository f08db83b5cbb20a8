/** nginx as an upstream and as a reverse-proxy hop, each a separate process with its own folder. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, waitForPort } from './ports.ts'
import { type Started, start } from './processes.ts'

export interface Nginx extends Started {
  readonly port: number
}

/** Starts nginx in the foreground with the given `http` block, in which `PORT` is replaced by the port. `batch`: see batch.ts. */
export async function startNginx(name: string, http: string, batch = false): Promise<Nginx> {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-nginx-'))
  chmodSync(folder, 0o755) // the workers run as another user
  const port = await freePort()
  const file = join(folder, 'nginx.conf')
  writeFileSync(
    file,
    `daemon off; pid ${folder}/pid; error_log stderr warn; worker_processes auto;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi; uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  keepalive_requests 1000000000; client_max_body_size 0;
${http.replaceAll('PORT', String(port))}
}
`,
  )
  // nginx does not report when it is ready, so we wait until its port answers.
  const args = ['-c', file, '-p', folder]
  const started = await start({ name, command: 'nginx', args, ready: waitForPort(port), batch })
  const stop = async () => {
    await started.stop()
    rmSync(folder, { recursive: true, force: true })
  }
  return { ...started, port, stop }
}
