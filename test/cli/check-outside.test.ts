/** `sallyport check server --outside`: a real nginx as the balancer, faulty in one way at a time. */

import { once } from 'node:events'
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttp } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { probeOutside } from '../../cli/check/outside.ts'
import { loadConfig } from '../../cli/config/load.ts'
import { type ServerConfig, serverSettings } from '../../cli/config/server.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { long, needs } from '../support/needs.ts'
import { runNginx } from '../support/nginx.ts'
import { freePort, startProxyProgram } from '../support/proxy-program.ts'
import { useMachine } from './machine.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine
const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

const statuses = (probes: readonly Probe[]) =>
  Object.fromEntries(probes.map(({ code, status }) => [code.slice(8), status]))
const ALL = { reach: 'ok', host: 'ok', upgrade: 'ok', body: 'ok', repeat: 'ok', quiet: 'ok' }

/** Extra or replacement directives for nginx. */
interface Balancer {
  readonly upstream?: (port: number) => string
  readonly host?: string
  readonly upgrade?: string
  readonly body?: string
  readonly more?: string
}

async function through(balancer: Balancer = {}, quiet: { quietMs?: number } = { quietMs: 3000 }): Promise<Probe[]> {
  const port = await freePort()
  const folder = file('nginx')
  mkdirSync(folder, { recursive: true })
  const server = `server 127.0.0.1:${port} max_fails=0;`
  const nginx = await runNginx(
    folder,
    listen => `
    ${process.getuid?.() === 0 ? 'user root;' : ''} daemon off; pid ${folder}/pid; worker_processes 1;
    events { worker_connections 128; }
    http {
      access_log off; proxy_temp_path ${folder}/p; client_body_temp_path ${folder}/b; fastcgi_temp_path ${folder}/f;
      uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
      upstream sallyport { ${balancer.upstream?.(port) ?? server} }
      server {
        listen 127.0.0.1:${listen} ssl;
        ssl_certificate ${file('server.pem')}; ssl_certificate_key ${file('server-key.pem')};
        ${balancer.body ?? 'client_max_body_size 0;'}
        location / {
          proxy_pass http://sallyport; proxy_http_version 1.1;
          ${balancer.host ?? 'proxy_set_header Host $http_host;'}
          ${balancer.upgrade ?? 'proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;'}
          ${balancer.more ?? ''}
        }
      }
    }`,
  )
  stops.push(() => nginx.stop())
  const config = await configOf(port, `https://*.tunnels.localhost:${nginx.port}`)
  return await probeOutside(config, { ca: readFileSync(file('ca.pem'), 'utf8'), deep: true, ...quiet })
}

async function configOf(port: number, publicUrl: string, more: Record<string, string> = {}): Promise<ServerConfig> {
  const all = { 'public.listen': `127.0.0.1:${port}`, 'public.url': publicUrl, domain: 'tunnels.localhost', ...more }
  const { values } = await loadConfig(serverSettings, {
    flags: new Map(Object.entries(all).map(([name, value]) => [name, [value]])),
    environment: {},
    configFile: undefined,
    everyName: [],
  })
  return values
}

describe.runIf(needs('nginx'))('through nginx', { tags: ['slow'] }, () => {
  test('every step passes', async () => {
    await certificate()
    const probes = await through()
    expect(statuses(probes)).toEqual(ALL)
    expect(probes[0]!.found).toMatch(/through "nginx/)
  })

  test('every step passes, although the other server is off, and this one counts as down after a failure', async () => {
    await certificate()
    const probes = await through({ upstream: port => `server 127.0.0.1:${port} fail_timeout=1s; server 127.0.0.1:1;` })
    expect(statuses(probes)).toEqual(ALL)
  })

  test.each<[string, Balancer, object, RegExp]>([
    ['another Host', { host: '' }, { host: 'fail' }, /^Host: sallyport$/],
    ['no Upgrade', { upgrade: 'proxy_set_header Connection "";' }, { upgrade: 'fail' }, /./],
    ['a body of 1 MiB', { body: '' }, { body: 'fail' }, /413/],
    [
      'a POST that is repeated',
      {
        upstream: port => `server 127.0.0.1:${port} max_fails=0; server localhost:${port} max_fails=0;`,
        more: 'proxy_next_upstream error timeout non_idempotent;',
      },
      { repeat: 'fail' },
      /^arrived [23] times$/,
    ],
    ['1 s of quiet', { more: 'proxy_read_timeout 1s;' }, { quiet: 'fail' }, /./],
  ])('that passes %s', async (_name, balancer, faults, found) => {
    await certificate()
    const probes = await through(balancer)
    expect(statuses(probes)).toEqual({ ...ALL, ...faults })
    expect(probes.find(({ status }) => status === 'fail')!.found).toMatch(found)
  })

  test.runIf(long)('that cuts after 60 s, as nginx does unless it is told otherwise', async () => {
    await certificate()
    expect(statuses(await through({}, {}))).toEqual({ ...ALL, quiet: 'fail' })
  })
})

describe.runIf(needs('haproxy'))('through HAProxy', { tags: ['slow'] }, () => {
  test.each([
    ['that passes bytes on, and closes connections until it has found a server', 'mode tcp', 'check inter 1s'],
    ['that speaks only HTTP/2 with the server', 'mode http', 'proto h2'],
  ])('%s', async (_name, mode, options) => {
    const [outside, port] = [await freePort(), await freePort()]
    const times = 'timeout connect 2s\n timeout client 30s\n timeout server 30s'
    writeFileSync(
      file('haproxy.cfg'),
      `listen all\n ${mode}\n ${times}\n bind 127.0.0.1:${outside}\n server one 127.0.0.1:${port} ${options}\n`,
    )
    const balancer = await startProxyProgram('haproxy', ['-f', file('haproxy.cfg')], outside)
    stops.push(() => balancer.stop())
    const config = await configOf(port, `http://*.tunnels.localhost:${outside}`)
    const probes = await probeOutside(config, { ca: undefined, deep: true, quietMs: 1000 })
    expect(statuses(probes)).toEqual(ALL)
  })
})

test('without a load balancer, with a certificate for callers that is in the folder', async () => {
  await certificate()
  mkdirSync(file('folder'))
  copyFileSync(file('server.pem'), file('folder/callers.crt'))
  copyFileSync(file('server-key.pem'), file('folder/callers.key'))
  await sallyport(['certs', 'server', '--ca', file(''), '--out', file(''), '--host', 'other.localhost', '--force'])
  const port = await freePort()
  const config = await configOf(port, `https://*.tunnels.localhost:${port}`, {
    'public.tls.cert': file('server.pem'),
    'public.tls.key': file('server-key.pem'),
    'public.tls.folder': file('folder'),
  })
  const probes = await probeOutside(config, { ca: readFileSync(file('ca.pem'), 'utf8'), deep: false })
  expect(probes.map(({ status }) => status)).toEqual(Array(5).fill('ok'))
})

async function certificate(): Promise<void> {
  await sallyport(['certs', 'server', '--ca', file(''), '--out', file(''), '--host', '*.tunnels.localhost', '--force'])
}

test('a load balancer that has to notice first that something listens here', async () => {
  const port = await freePort()
  const health = await freePort()
  let requests = 0
  const balancer = createHttp(async (request, response) => {
    const checked = [`${health}/readyz`, `${port}/lb`].map(async place => {
      const answer = await fetch(`http://127.0.0.1:${place}`)
      const { status } = await fetch(`http://127.0.0.1:${place}`, { method: 'OPTIONS' })
      return (await answer.text()).startsWith('ok') && status === 405
    })
    const isReady = await Promise.all(checked).then(
      all => !all.includes(false),
      () => false,
    )
    if (++requests < 3 || !isReady) return void response.writeHead(503).end('no server is available')
    fetch(`http://127.0.0.1:${port}${request.url}`)
      .then(async answer => response.writeHead(answer.status).end(await answer.text()))
      .catch(() => request.socket.destroy())
  }).listen(0, '127.0.0.1')
  await once(balancer, 'listening')
  stops.push(() => {
    balancer.close()
    balancer.closeAllConnections()
  })
  const { port: outside } = balancer.address() as AddressInfo
  const config = await configOf(port, `http://*.tunnels.localhost:${outside}`, {
    'health.listen': `127.0.0.1:${health}`,
    'public.health-path': '/lb',
  })
  const [reach] = await probeOutside(config, { ca: undefined, deep: false })
  expect(reach).toMatchObject({ code: 'outside-reach', status: 'ok' })
})

test('a load balancer that uses another server in turn', { tags: ['slow'] }, async () => {
  const port = await freePort()
  let requests = 0
  const balancer = createHttp((request, response) => {
    const late = () => void response.writeHead(503, { server: 'another' }).end('urn:sallyport:')
    // As long as a server that has just started holds the request of a runtime that is offline.
    if (++requests % 2 === 0) return void setTimeout(late, 5500)
    fetch(`http://127.0.0.1:${port}${request.url}`)
      .then(async answer => response.writeHead(answer.status).end(await answer.text()))
      .catch(() => request.socket.destroy())
  }).listen(0, '127.0.0.1')
  await once(balancer, 'listening')
  stops.push(() => balancer.close())
  const config = await configOf(port, `http://*.tunnels.localhost:${(balancer.address() as AddressInfo).port}`)
  const [reach] = await probeOutside(config, { ca: undefined, deep: false })
  expect(reach).toMatchObject({ status: 'fail', found: 'something else answers, too, 503: "another"' })
})

test('as a command: while something else answers, and while the server is running', { tags: ['slow'] }, async () => {
  const other = createHttp((_, response) => void response.writeHead(404, { server: 'another' }).end()).listen(
    0,
    '127.0.0.1',
  )
  await once(other, 'listening')
  stops.push(() => other.close())
  const { port } = other.address() as { port: number }
  const run = async (...more: string[]) => {
    const args = ['check', 'server', '--json', '--outside', ...machine.serverArgs(...more).slice(1)]
    const { code, out } = await sallyport(args)
    const probes = (JSON.parse(out) as { probes: Probe[] }).probes.filter(one => one.code.startsWith('outside-'))
    return { code, statuses: statuses(probes), found: probes[0]!.found, hint: probes[0]!.hint }
  }
  const skipped = { reach: 'fail', host: 'skip', upgrade: 'skip', body: 'skip', repeat: 'skip' }
  const elsewhere = await run('--public.url', `http://*.tunnels.localhost:${port}`)
  expect(elsewhere).toMatchObject({ code: 5, statuses: skipped, found: 'something else answers, 404: "another"' })
  const tls = { cert: readFileSync(file('server.pem')), key: readFileSync(file('server-key.pem')) }
  const secure = createHttps(tls).listen(0, '127.0.0.1')
  await once(secure, 'listening')
  stops.push(() => secure.close())
  const untrusted = await run('--public.url', `https://*.tunnels.localhost:${(secure.address() as AddressInfo).port}`)
  expect(untrusted).toMatchObject({ statuses: skipped, hint: 'Trust its authority (--outside.ca).' })
  const args = machine.serverArgs().slice(1)
  const taken = args.map((text, i) => (args[i - 1] === '--public.listen' ? `127.0.0.1:${port}` : text))
  const { out } = await sallyport(['check', 'server', '--outside', ...taken])
  expect(out).toMatch(/outside-reach .*EADDRINUSE.*\n.*\n +Stop the server/)
  expect((await sallyport(['check', 'server', '--deep', ...args])).code).toBe(2)
})
