/** One reverse-proxy hop, the unit that every other road is measured in. */
import { startNginx } from '../lib/nginx.ts'
import type { RoadMaker } from './road.ts'

export const nginxHop: RoadMaker = async upstreamPort => {
  const nginx = await startNginx(
    'nginx hop',
    `  upstream behind { server 127.0.0.1:${upstreamPort}; keepalive 128; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:PORT backlog=1024;
    location / {
      proxy_pass http://behind; proxy_http_version 1.1; proxy_request_buffering off; proxy_max_temp_file_size 0; proxy_set_header Connection ""; proxy_set_header Host $host;
    }
  }`,
  )
  return {
    name: 'nginx hop',
    url: `http://127.0.0.1:${nginx.port}`,
    headers: {},
    pids: [nginx.pid],
    stop: () => nginx.stop(),
  }
}
