/**
 * What a configuration of frp's client (github.com/fatedier/frp, `frpc.toml`) becomes here. Each key of it is carried, or is named
 * as one that is not, with the reason: nothing is left out without a word.
 */
import { isDnsLabel } from '../../protocol/base/names.ts'

/** One runtime, which one client serves. */
interface MigratedRuntime {
  readonly name: string
  /** For `--config` of its client. */
  readonly client: object
  /** For `--routes` of its client. */
  readonly routes: { readonly routes: readonly object[]; readonly resolve?: Readonly<Record<string, string>> }
}

interface Migration {
  readonly runtimes: readonly MigratedRuntime[]
  /** What is different here, or is not carried; a line each. */
  readonly notes: readonly string[]
}

/** A table of a configuration, which remembers which keys were read. */
class Table {
  readonly #values: Readonly<Record<string, unknown>>
  readonly #read = new Set<string>()

  constructor(value: unknown) {
    this.#values = typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
  }

  text(key: string): string | undefined {
    const value = this.#take(key)
    return typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined
  }

  list(key: string): string[] {
    const value = this.#take(key)
    return Array.isArray(value) ? value.map(String) : []
  }

  tables(key: string): Table[] {
    const value = this.#take(key)
    return Array.isArray(value) ? value.map(one => new Table(one)) : []
  }

  /** Those of its members that are text. */
  texts(key: string): Record<string, string> {
    const value = this.#take(key)
    const entries = Object.entries(typeof value === 'object' && value !== null ? value : {})
    return Object.fromEntries(entries.filter(([, text]) => typeof text === 'string')) as Record<string, string>
  }

  table(key: string): Table {
    return new Table(this.#take(key))
  }

  #take(key: string): unknown {
    this.#read.add(key)
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined
  }

  /** Keys that nobody has asked for; those of `transport` one by one, since they have nothing to do with each other. */
  get unread(): string[] {
    const keys = Object.keys(this.#values).filter(key => !this.#read.has(key))
    const inner = (key: string) => new Table(this.#values[key]).unread.map(name => `${key}.${name}`)
    return keys.flatMap(key => (key === 'transport' ? inner(key) : [key]))
  }
}

/** Why a key is not carried, by its beginning. Others are named without a reason. */
const REASONS: readonly (readonly [start: string, reason: string])[] = [
  ['annotations', 'nothing here reads it'],
  ['metadatas', 'nothing here reads it'],
  ['auth', 'a runtime has a token of its own, made by `sallyport token create`'],
  ['healthCheck', 'the target is tried by each request; docs/errors.md says what callers get while it is away'],
  ['includes', 'convert each file'],
  ['loadBalancer', 'a second client of one runtime stands by for the first, and takes over'],
  ['loginFailExit', 'a client goes on trying; --exit-on-refusal ends it when the token is refused'],
  ['natTraversal', 'all traffic goes through the server'],
  ['routeByHTTPUser', 'routes are chosen by host, path, method and header'],
  ['transport.bandwidthLimit', '`--limits.byte-rate-per-runtime` of the server bounds a runtime'],
  ['transport.poolCount', 'one session carries all requests; --connections says how many sessions'],
  ['transport.protocol', 'a client dials WSS, and nothing else'],
  ['transport.proxyProtocolVersion', 'the target reads the caller from Forwarded and X-Forwarded-For'],
  ['transport.useCompression', 'bytes pass as they are'],
  ['transport.useEncryption', 'a session is always TLS'],
  ['transport.tls', 'a session is always TLS'],
  ['webServer', 'status and metrics are at the admin listener (--admin.listen)'],
]

const RAW_TYPES: Readonly<Record<string, string>> = {
  tcp: 'raw TCP',
  udp: 'UDP',
  tcpmux: 'raw TCP',
  stcp: 'raw TCP',
  sudp: 'UDP',
  xtcp: 'peer to peer',
}

/** Plugins of frp's that speak HTTP to the target, and how. */
const PLUGINS: Readonly<Record<string, 'http' | 'https'>> = {
  http2https: 'https',
  https2http: 'http',
  https2https: 'https',
}

/** `domain` is the `--domain` of the server: a runtime is called at `NAME.domain`. */
export function migrateFrp(configuration: unknown, domain: string): Migration {
  const notes: string[] = []
  const all = new Table(configuration)
  const routes: Runtimes = new Map()
  for (const proxy of all.tables('proxies')) migrateProxy(proxy, domain, routes, notes)
  for (const visitor of all.tables('visitors')) {
    notes.push(`visitor ${visitor.text('name') ?? ''}: not carried: callers need no program, they use HTTPS`)
  }
  const client = clientOf(all, domain, notes)
  notes.push(...left('', all.unread))
  const runtimes = [...routes].map(([name, { routes: rows, resolve }]) => ({
    name,
    client: { ...client, token: { file: `${name}.token` }, routes: `${name}-routes.yaml` },
    routes: { routes: rows, ...(Object.keys(resolve).length === 0 ? {} : { resolve }) },
  }))
  return { runtimes, notes }
}

const LEVELS: Readonly<Record<string, string>> = {
  trace: 'debug',
  debug: 'debug',
  info: 'info',
  warn: 'warn',
  error: 'error',
}

function clientOf(all: Table, domain: string, notes: string[]): object {
  const [address, transport, log] = [all.text('serverAddr'), all.table('transport'), all.table('log')]
  all.text('serverPort')
  const server = `wss://connect.${domain}:443`
  if (address !== undefined) notes.push(`serverAddr ${address} is not carried: a client dials ${server}`)
  const [proxy, ca, level] = [
    transport.text('proxyURL'),
    transport.table('tls').text('trustedCaFile'),
    log.text('level'),
  ]
  notes.push(...left('transport.', transport.unread), ...left('log.', log.unread))
  return {
    server: [server],
    ...(proxy === undefined ? {} : { proxy }),
    ...(ca === undefined ? {} : { ca: [ca] }),
    ...(level === undefined || LEVELS[level] === undefined ? {} : { log: { level: LEVELS[level] } }),
  }
}

interface Row {
  readonly name: string
  readonly match: { readonly path: string }
}

type Runtimes = Map<string, { routes: Row[]; resolve: Record<string, string> }>

function migrateProxy(proxy: Table, domain: string, runtimes: Runtimes, notes: string[]): void {
  const name = proxy.text('name') ?? 'unnamed'
  const type = proxy.text('type') ?? 'tcp'
  const say = (text: string) => {
    notes.push(`proxy ${name}: ${text}`)
  }
  const raw = RAW_TYPES[type]
  if (raw !== undefined) {
    say(`not carried: ${raw}, and Sallyport carries HTTP; keep frp for it`)
    return
  }
  // Without the password, the protected service would be open.
  if (proxy.text('httpUser') !== undefined || proxy.text('httpPassword') !== undefined) {
    say('not carried: it asks callers for a password; let the target or an identity proxy ask, then take httpUser out')
    return
  }
  const target = targetOf(proxy, type, say)
  if (target === undefined) return
  const hosts = runtimesOf(proxy, domain, say)
  if (hosts.length === 0) say('not carried: it has neither subdomain nor customDomains')
  const paths = proxy.list('locations')
  if (paths.some(path => path !== '/')) say('a path matches whole segments here: /a is /a and /a/..., not /ab')
  const { resolve, ...rest } = target
  for (const runtime of hosts) {
    const found = runtimes.get(runtime) ?? { routes: [], resolve: {} }
    runtimes.set(runtime, found)
    Object.assign(found.resolve, resolve)
    for (const [index, path] of (paths.length === 0 ? ['/'] : paths).entries()) {
      const row = { name: index === 0 ? name : `${name}-${index + 1}`, match: { path }, ...rest }
      const other = found.routes.find(({ match }) => match.path === path)
      if (other === undefined) found.routes.push(row)
      else say(`not carried: ${other.name} has ${path} of ${runtime}.${domain} already`)
    }
  }
  notes.push(...left(`proxy ${name}: `, proxy.unread))
}

type Say = (text: string) => void

interface Target {
  readonly target: string
  readonly host?: 'target'
  readonly headers?: object
  readonly responseHeaders?: object
  readonly resolve: Record<string, string>
}

function targetOf(proxy: Table, type: string, say: Say): Target | undefined {
  const plugin = proxy.table('plugin')
  const kind = plugin.text('type')
  const scheme = kind === undefined ? (type === 'https' ? 'https' : 'http') : PLUGINS[kind]
  if (scheme === undefined) {
    say(`not carried: the plugin ${kind} has no counterpart`)
    return undefined
  }
  if (type === 'https') {
    for (const key of ['crtPath', 'keyPath']) plugin.text(key)
    say('the server ends TLS, with its own certificate; frp passes it on to the client')
  }
  if (scheme === 'https')
    say('the certificate of the target is checked, which frp does not do; tls.ca of its route trusts a private one')
  const local =
    kind === undefined
      ? `${proxy.text('localIP') ?? '127.0.0.1'}:${proxy.text('localPort') ?? '80'}`
      : plugin.text('localAddr')
  if (local === undefined || !/^[^\s/:]+:\d{1,5}$/.test(local)) {
    say(`not carried: ${local ?? 'nothing'} is no address of a target`)
    return undefined
  }
  const from = kind === undefined ? proxy : plugin
  const host = from.text('hostHeaderRewrite')
  const request = from.table('requestHeaders').texts('set')
  const response = from.table('responseHeaders').texts('set')
  for (const key of plugin.unread) say(`plugin.${key} is not carried`)
  const port = local.slice(local.lastIndexOf(':') + 1)
  const address = host === undefined ? local : `${host.replace(/:\d+$/, '')}:${port}`
  return {
    target: `${scheme}://${address}`,
    ...(host === undefined ? {} : { host: 'target' as const }),
    ...(Object.keys(request).length === 0 ? {} : { headers: { set: request } }),
    ...(Object.keys(response).length === 0 ? {} : { responseHeaders: { set: response } }),
    resolve: address === local ? {} : { [address]: local },
  }
}

/** The runtimes that stand for the names under which a proxy is called. */
function runtimesOf(proxy: Table, domain: string, say: Say): string[] {
  const runtimes = new Set<string>()
  const add = (label: string, of: string) => {
    if (isDnsLabel(label.toLowerCase())) runtimes.add(label.toLowerCase())
    else say(`not carried: ${of} gives no name of a runtime`)
  }
  const subdomain = proxy.text('subdomain')
  if (subdomain !== undefined) add(subdomain, subdomain)
  for (const name of proxy.list('customDomains')) {
    const label = name.split('.')[0]!
    add(label, name)
    if (name.toLowerCase() !== `${label}.${domain}`.toLowerCase()) {
      say(`${name} is not under ${domain}: callers use ${label}.${domain}`)
    }
  }
  return [...runtimes]
}

function left(prefix: string, keys: readonly string[]): string[] {
  return keys.map(key => {
    const whole = prefix.endsWith('.') ? `${prefix}${key}` : key
    const reason = REASONS.find(([start]) => whole.startsWith(start))
    return `${prefix}${key} is not carried${reason === undefined ? '' : `: ${reason[1]}`}`
  })
}
