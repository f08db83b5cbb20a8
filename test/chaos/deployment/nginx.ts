/** A load balancer in front of the servers, as an operator would configure nginx for them. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { nginxFile } from '../../../cli/demo/nginx.ts'
import { runNginx } from '../../support/nginx.ts'
import type { ProxyProgram } from '../../support/proxy-program.ts'
import type { DeploymentFiles } from './files.ts'

const CONNECT_S = 5

/** `ports`: the servers' public listeners. `pace`: as in the options of the deployment. */
export async function startNginx(
  files: DeploymentFiles,
  ports: readonly number[],
  pace: number,
): Promise<ProxyProgram> {
  const folder = join(files.folder, 'nginx')
  await mkdir(folder)
  return runNginx(folder, port => proxyConfig(files, folder, port, ports, Math.ceil(CONNECT_S * pace)))
}

/**
 * Safe requests go to the other server if one does not answer (nginx's `proxy_next_upstream error timeout`); others
 * only if nothing was sent. It closes an idle connection before a server that is stopping does. No server is taken out after a
 * failure, since each refused connection shows it again.
 */
function proxyConfig(
  files: DeploymentFiles,
  folder: string,
  port: number,
  ports: readonly number[],
  connectS: number,
): string {
  return nginxFile(
    folder,
    `\
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  upstream servers {
    ${ports.map(server => `server 127.0.0.1:${server} max_fails=0;`).join('\n    ')}
    keepalive 64;
    keepalive_timeout 1s;
  }
  server {
    listen 127.0.0.1:${port} ssl;
    ssl_certificate ${files.at('server.pem')};
    ssl_certificate_key ${files.at('server-key.pem')};
    keepalive_timeout 1h;
    keepalive_requests 1000000;
    client_max_body_size 0;
    location / {
      proxy_pass https://servers;
      proxy_ssl_trusted_certificate ${files.at('ca.pem')};
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_http_version 1.1;
      proxy_next_upstream error timeout;
      proxy_connect_timeout ${connectS}s;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_read_timeout 1d;
      proxy_send_timeout 1d;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Forwarded-For $remote_addr;
    }
  }
`,
    `${folder}/error.log error`,
    4096,
  )
}
