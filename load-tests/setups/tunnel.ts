/** Our own setups: server, client and router as in a deployment, over TLS and WSS, and also the ingress setup. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { startNginx } from '../lib/nginx.ts'
import { DOMAIN } from '../lib/secrets.ts'
import { PATHS } from '../upstream/service.ts'
import { command, portOf, type SallyportProcess } from './command.ts'
import { proxyBlock } from './hops.ts'
import { type Setup, type SetupContext, type SetupMaker, type Stoppable, started, stopInTurn } from './setup.ts'

export interface TunnelOptions {
  readonly key: string
  readonly name: string
  readonly router?: 'embedded' | 'service'
  /** TLS at the edge. There are two setups then, over HTTP/1.1 and over HTTP/2. */
  readonly edgeTls?: boolean
}

export const RUNTIME = 'bench'

export const tunnel =
  (options: TunnelOptions): SetupMaker =>
  async context => {
    const parts: (SallyportProcess & Stoppable)[] = []
    const server = await started(parts, async () => {
      const server = await startServer(context, options.edgeTls)
      parts.push(server)
      if (options.router === 'service') parts.push(await startRouter(context))
      const client = await startClient(context, server, parts[1]?.address('router'))
      if (context.inbox === 'away') await client.stop()
      else parts.push(client)
      return server
    })
    const base = {
      headers: { host: `${RUNTIME}.${DOMAIN}` },
      pids: parts.map(part => part.pid),
      stop: () => stopInTurn(parts),
    }
    const address = server.address('public')
    if (!options.edgeTls) return [{ ...base, key: options.key, name: options.name, url: `http://${address}` }]
    const tls = { ...base, url: `https://${address}`, ca: context.secrets.ca }
    return [
      { ...tls, key: 'tunnel-tls', name: 'tunnel, TLS edge, HTTP/1.1' },
      { ...tls, key: 'tunnel-h2', name: 'tunnel, TLS edge, HTTP/2', http2: true, stop: async () => {} },
    ]
  }

/** nginx as the ingress controller, with the router service behind it. */
export const ingress: SetupMaker = async context => {
  const parts: Stoppable[] = []
  return started(parts, async (): Promise<Setup[]> => {
    const router = await startRouter(context)
    parts.push(router)
    const nginx = await startNginx('ingress', proxyBlock(router.address('router')))
    parts.push(nginx)
    return [
      {
        key: 'ingress',
        name: 'ingress: nginx, router service',
        url: `http://127.0.0.1:${nginx.port}`,
        headers: {},
        pids: [router.pid, nginx.pid],
        stop: () => stopInTurn(parts),
      },
    ]
  })
}

export function serverArguments(
  { secrets }: Pick<SetupContext, 'secrets'>,
  listen: { public: string; control: string },
): string[] {
  return [
    'server',
    ...['--public.listen', listen.public, '--control.listen', listen.control],
    ...['--control.tls.cert', secrets.certificate, '--control.tls.key', secrets.key],
    ...['--domain', DOMAIN, '--auth.jwks.file', secrets.jwks],
  ]
}

/** Limits that are far above what one round stores. */
const LARGE_INBOX = [
  '--inbox.messages-per-runtime',
  '1000000',
  '--inbox.bytes-per-runtime',
  '16GiB',
  '--inbox.bytes',
  '16GiB',
]

const inboxFile = ({ secrets, inbox }: SetupContext) => join(secrets.folder, `inbox-${inbox}.db`)

const ANY_PORT = '127.0.0.1:0'

export async function startServer(
  context: SetupContext,
  edgeTls = false,
  more: readonly string[] = [],
): Promise<SallyportProcess> {
  const { certificate, key } = context.secrets
  const args = [...serverArguments(context, { public: ANY_PORT, control: ANY_PORT }), ...more]
  if (context.inbox !== undefined) args.push('--inbox', `sqlite:${inboxFile(context)}`, ...LARGE_INBOX)
  if (edgeTls) args.push('--public.tls.cert', certificate, '--public.tls.key', key)
  return command(args, { until: ['public', 'control'], profileTo: context.profileTo })
}

async function startRouter(context: SetupContext): Promise<SallyportProcess> {
  const routes = await writeRoutes(context)
  const args = ['router', '--listen', ANY_PORT, '--routes', routes, '--trusted-proxies', '127.0.0.1/32']
  return command(args, { until: ['router'], profileTo: context.profileTo })
}

async function writeRoutes({ secrets, upstreamPort, inbox }: SetupContext): Promise<string> {
  const path = join(secrets.folder, `routes-${upstreamPort}-${inbox ?? 'plain'}.yaml`)
  const target = `http://127.0.0.1:${upstreamPort}`
  // No webhook waits for another.
  const mode = inbox === 'away' ? 'always' : inbox
  const webhooks = {
    name: 'webhooks',
    match: { path: PATHS.hook, methods: ['POST'] },
    target,
    inbox: { mode, lane: 'none' },
  }
  const all = { name: 'all', match: { path: '/' }, target }
  // YAML includes JSON.
  await writeFile(path, JSON.stringify({ routes: inbox === undefined ? [all] : [webhooks, all] }))
  return path
}

/** With a `router`, the client sends everything there. Otherwise it routes by itself. */
export async function startClient(
  context: SetupContext,
  server: SallyportProcess,
  router?: string,
): Promise<SallyportProcess> {
  const { secrets, sessions, via } = context
  const controlPort = portOf(server.address('control'))
  const port = via === undefined ? controlPort : await via(controlPort)
  const target = router === undefined ? ['--routes', await writeRoutes(context)] : ['--target', `http://${router}`]
  const args = [
    'client',
    ...['--server', `wss://127.0.0.1:${port}`, '--ca', secrets.ca],
    ...['--token.file', await secrets.tokenFile(RUNTIME), ...target],
    ...(context.inbox === undefined ? [] : ['--inbox.key.file', `${inboxFile(context)}.key`]),
    ...(sessions === undefined ? [] : ['--connections', String(sessions)]),
  ]
  return command(args, { until: ['connected'], profileTo: context.profileTo })
}
