/** Setups without a tunnel: the upstream alone, one nginx hop (the unit of all ratios), and one `http-proxy` hop. */
import { fileURLToPath } from 'node:url'
import { startNginx } from '../lib/nginx.ts'
import { start } from '../lib/processes.ts'
import type { SetupMaker } from './setup.ts'

export const direct: SetupMaker = async ({ upstreamPort }) => [
  {
    key: 'direct',
    name: 'upstream alone',
    url: `http://127.0.0.1:${upstreamPort}`,
    headers: {},
    pids: [],
    stop: async () => {},
  },
]

/** An `http` block with one reverse proxy: keep-alive to the upstream, upgrades, and no bodies collected on the way. */
export function proxyBlock(upstream: string): string {
  return `  upstream behind { server ${upstream}; keepalive 600; keepalive_requests 1000000000; }
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  server {
    listen 127.0.0.1:PORT backlog=4096;
    location / {
      proxy_pass http://behind; proxy_http_version 1.1; proxy_request_buffering off; proxy_max_temp_file_size 0;
      proxy_read_timeout 1d; proxy_set_header Host $host; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }`
}

export const nginxHop: SetupMaker = async ({ upstreamPort }) => {
  const nginx = await startNginx('nginx hop', proxyBlock(`127.0.0.1:${upstreamPort}`))
  return [
    {
      key: 'nginx',
      name: 'nginx hop',
      url: `http://127.0.0.1:${nginx.port}`,
      headers: {},
      pids: [nginx.pid],
      stop: () => nginx.stop(),
    },
  ]
}

export const httpProxyHop: SetupMaker = async ({ upstreamPort }) => {
  let port = ''
  const proxy = await start({
    name: 'http-proxy hop',
    command: process.execPath,
    args: [fileURLToPath(new URL('http-proxy-process.ts', import.meta.url)), String(upstreamPort)],
    ready: line => {
      if (!/^\d+$/.test(line)) return false // its warnings
      port = line
      return true
    },
  })
  return [
    {
      key: 'http-proxy',
      name: 'http-proxy hop',
      url: `http://127.0.0.1:${port}`,
      headers: {},
      pids: [proxy.pid],
      stop: () => proxy.stop(),
    },
  ]
}
