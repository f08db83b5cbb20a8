/** The service behind every road: nginx with files of known content, so that it is never the limit. */
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Nginx, startNginx } from './nginx.ts'

export const SMALL_BODY = 'x'.repeat(1024)

export async function startUpstream(): Promise<Nginx> {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-upstream-'))
  chmodSync(folder, 0o755) // nginx's workers run as another user
  writeFileSync(join(folder, 'small'), SMALL_BODY)
  writeFileSync(join(folder, '100mb'), Buffer.alloc(100 * 1024 * 1024, 'y'))
  return startNginx(
    'upstream',
    `  server { listen 127.0.0.1:PORT backlog=1024; root ${folder}; sendfile on; keepalive_timeout 300s;
    location /small { open_file_cache max=10; } }`,
  )
}
