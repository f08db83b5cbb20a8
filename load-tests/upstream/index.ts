/** The upstream of `npm run bench`: nginx with files of known content, and behind it the app, for requests that need code. */
import { chmodSync, closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Nginx, startNginx } from '../lib/nginx.ts'
import { patternAt } from '../lib/pattern.ts'
import { start } from '../lib/processes.ts'
import { MARK, PATHS, SMALL_BODY } from './service.ts'

/** `sizes` are the sizes of the bodies under `/bytes/N`. */
export async function startUpstream(sizes: readonly number[]): Promise<Nginx> {
  let appPort = ''
  const app = await start({
    name: 'upstream app',
    batch: true,
    command: process.execPath,
    args: [fileURLToPath(new URL('process.ts', import.meta.url))],
    ready: line => {
      appPort = line
      return true
    },
  })
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-upstream-'))
  chmodSync(folder, 0o755) // nginx's workers run as another user
  writeFileSync(join(folder, PATHS.small), SMALL_BODY)
  mkdirSync(join(folder, PATHS.bytes))
  for (const size of sizes) writePattern(join(folder, PATHS.bytes, String(size)), size)
  const proxied = [PATHS.sink, PATHS.hook, PATHS.echo, PATHS.events].join('|')
  const nginx = await startNginx(
    'upstream',
    `  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  upstream app { server 127.0.0.1:${appPort}; keepalive 600; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:PORT backlog=4096; root ${folder}; sendfile on; tcp_nopush on; keepalive_timeout 300s;
    add_header ${MARK.join(' ')};
    location ${PATHS.small} { open_file_cache max=10; }
    location ~ ^(${proxied})$ {
      proxy_pass http://app; proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off;
      proxy_read_timeout 1d; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    }
  }`,
    true,
  )
  return {
    ...nginx,
    async stop() {
      await nginx.stop()
      await app.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function writePattern(path: string, bytes: number): void {
  const file = openSync(path, 'w')
  for (let at = 0; at < bytes; ) at += writeSync(file, patternAt(at, bytes - at))
  closeSync(file)
}
