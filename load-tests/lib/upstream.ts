/** The service behind every road: nginx with files of known content, so that it is never the limit. */
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Nginx, startNginx } from './nginx.ts'
import { start } from './processes.ts'

export const SMALL_BODY = 'x'.repeat(1024)

/** `/small` is 1 KB, `/100mb` 100 MiB of `y`; `/sink` takes an upload and answers how many bytes came. */
export async function startUpstream(): Promise<Nginx> {
  let sinkPort = ''
  const sink = await start({
    name: 'upload sink',
    command: process.execPath,
    args: [fileURLToPath(new URL('sink.ts', import.meta.url))],
    ready: line => {
      sinkPort = line
      return true
    },
  })
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-upstream-'))
  chmodSync(folder, 0o755) // nginx's workers run as another user
  writeFileSync(join(folder, 'small'), SMALL_BODY)
  writeFileSync(join(folder, '100mb'), Buffer.alloc(100 * 1024 * 1024, 'y'))
  const nginx = await startNginx(
    'upstream',
    `  server {
    listen 127.0.0.1:PORT backlog=1024; root ${folder}; sendfile on; keepalive_timeout 300s;
    location /small { open_file_cache max=10; }
    location /sink { proxy_pass http://127.0.0.1:${sinkPort}; proxy_http_version 1.1; proxy_request_buffering off; }
  }`,
  )
  return {
    ...nginx,
    async stop() {
      await nginx.stop()
      await sink.stop()
    },
  }
}
