/**
 * Converts the configuration of an frp client (github.com/fatedier/frp, `frpc.toml`). Each key is converted, or is
 * reported with the reason why not. Nothing is left out silently.
 */
import { isIPv4 } from 'node:net'
import { isRecord } from '../../protocol/base/is-record.ts'
import { isBelow, isDnsLabel } from '../../protocol/base/names.ts'
import { createRouter, type RouteTable } from '../../router/index.ts'

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
  /** What is different here, or is not converted; a line each. */
  readonly notes: readonly string[]
}

/** A table of the configuration, which tracks which of its keys were converted. */
class Table {
  readonly #values: Readonly<Record<string, unknown>>
  readonly #read = new Set<string>()
  readonly #inner = new Map<string, Table>()

  constructor(values: object) {
    this.#values = { ...values }
  }

  text(key: string): string | undefined {
    const value = this.#take(key, 'string') ?? this.#take(key, 'number')
    return value === undefined || value === '' ? undefined : String(value)
  }

  flag(key: string): unknown {
    return this.#take(key, 'boolean')
  }

  list(key: string): string[] {
    const value = this.#own(key)
    if (!Array.isArray(value)) return []
    this.#read.add(key)
    return value.map(String)
  }

  tables(key: string): Table[] {
    const value = this.#own(key)
    if (!Array.isArray(value)) return []
    this.#read.add(key)
    return value.map(one => new Table(isRecord(one) ? one : {}))
  }

  table(key: string): Table {
    const value = this.#own(key)
    const inner = this.#inner.get(key) ?? new Table(isRecord(value) ? value : {})
    if (isRecord(value)) this.#inner.set(key, inner)
    return inner
  }

  /** All members that are strings. */
  texts(): Record<string, string> {
    const entries = Object.keys(this.#values).map(key => [key, this.text(key)] as const)
    return Object.fromEntries(entries.filter((entry): entry is [string, string] => entry[1] !== undefined))
  }

  #own(key: string): unknown {
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined
  }

  #take(key: string, type: 'string' | 'number' | 'boolean'): unknown {
    const value = this.#own(key)
    if (typeof value !== type) return undefined
    this.#read.add(key)
    return value
  }

  /** What was not converted; of tables that were looked into, and of `transport`, member by member. */
  get unread(): string[] {
    if (isRecord(this.#own('transport'))) this.table('transport')
    const keys = Object.keys(this.#values).filter(key => !this.#read.has(key))
    return keys.flatMap(key => this.#inner.get(key)?.unread.map(name => `${key}.${name}`) ?? [key])
  }
}

/** Why a key is not converted, by its beginning; the first that fits. */
const REASONS: readonly (readonly [start: string, reason: string])[] = [
  ['annotations', 'Sallyport does not use it'],
  ['metadatas', 'Sallyport does not use it'],
  ['auth', 'each runtime has its own token, made by `sallyport token create`'],
  ['healthCheck', 'every request tries the target; docs/errors.md lists what callers get while it is down'],
  ['dnsServer', 'the resolver of the system is used'],
  ['includes', 'convert each file'],
  ['loadBalancer', 'a second client of a runtime is a standby for the first, and takes over'],
  ['log.', 'the log goes to stderr (--log.level, --log.format)'],
  ['loginFailExit', 'a client keeps trying; --exit-on-refusal ends it when the token is refused'],
  ['natTraversal', 'all traffic goes through the server'],
  ['routeByHTTPUser', 'routes are chosen by host, path, method and header'],
  ['transport.bandwidthLimit', '`--limits.byte-rate-per-runtime` of the server limits a runtime'],
  ['transport.poolCount', 'one session carries all requests; --connections sets the number of sessions'],
  ['transport.protocol', 'a client only dials WSS'],
  ['transport.proxyProtocolVersion', 'the target gets the caller in Forwarded and X-Forwarded-For'],
  ['transport.useCompression', 'bytes pass unchanged'],
  ['transport.useEncryption', 'a session is always TLS'],
  ['transport.proxyURL', 'a client only supports http:// and https:// proxies'],
  ['transport.tls.certFile', 'the token identifies a client; --tls.cert adds a client certificate'],
  ['transport.tls.keyFile', 'the token identifies a client; --tls.key goes with --tls.cert'],
  ['transport.tls.trustedCaFile', 'it is the authority of frps; `ca` takes that of the Sallyport server'],
  ['transport.tls', 'a session is always TLS'],
  ['user', 'the token names the runtime'],
  ['webServer', 'status and metrics are on the admin listener (--admin.listen)'],
  ['', 'Sallyport has no counterpart'],
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

/** `domain` is the `--domain` of the server: a runtime is called at `NAME.domain`. `server` is what its client dials. */
export function migrateFrp(configuration: unknown, domain: string, server: string): Migration {
  const notes: string[] = []
  const all = new Table(isRecord(configuration) ? configuration : {})
  const started = all.list('start')
  const routes: Runtimes = new Map()
  for (const proxy of all.tables('proxies')) {
    const off = reasonOff(proxy, started)
    if (off === undefined) migrateProxy(proxy, domain, routes, notes)
    else notes.push(`proxy ${nameOf(proxy)}: not converted: ${off}`)
  }
  for (const visitor of all.tables('visitors')) {
    notes.push(`visitor ${visitor.text('name') ?? ''}: not converted: callers need no program; they use HTTPS`)
  }
  const client = clientOf(all, server, notes)
  notes.push(...left(all.unread))
  const runtimes = [...routes].map(([name, { routes: rows, leads }]) => {
    const resolve = Object.fromEntries([...leads].filter(([address, local]) => address !== local))
    return {
      name,
      client: { ...client, token: { file: `${name}.token` }, routes: `${name}-routes.yaml` },
      routes: { routes: rows, ...(Object.keys(resolve).length === 0 ? {} : { resolve }) },
    }
  })
  return { runtimes, notes }
}

const LEVELS: Readonly<Record<string, string>> = {
  trace: 'debug',
  debug: 'debug',
  info: 'info',
  warn: 'warn',
  error: 'error',
}

function clientOf(all: Table, server: string, notes: string[]): object {
  const [address, transport, log] = [all.text('serverAddr'), all.table('transport'), all.table('log')]
  all.text('serverPort')
  if (address !== undefined) notes.push(`serverAddr ${address} is not converted: a client dials ${server}`)
  transport.table('tls')
  const proxy = transport.text('proxyURL')
  const isWeb = proxy === undefined || (/^https?:/i.test(proxy) && URL.canParse(proxy))
  // Not its value, which may hold a password.
  if (!isWeb) notes.push(...left(['transport.proxyURL']))
  const level = LEVELS[log.text('level') ?? '']
  return {
    server: [server],
    ...(proxy === undefined || !isWeb ? {} : { proxy }),
    ...(level === undefined ? {} : { log: { level } }),
  }
}

interface Row {
  readonly name: string
  readonly match: { readonly path: string }
}

/** By name; `hosts`: what callers use with frp; `leads`: where connections to each address of a target go. */
type Runtimes = Map<
  string,
  { readonly hosts: Set<string>; readonly routes: Row[]; readonly leads: Map<string, string> }
>

function nameOf(proxy: Table): string {
  return proxy.text('name') ?? 'unnamed'
}

/** frp's names are for people. */
function labelOf(name: string): string {
  const label = name.replaceAll(/[^\w.-]+/g, '-').replace(/^[^a-z\d]+/i, '')
  return label.slice(0, 60) || 'route'
}

/** `label`, or with a number if other routes have it. */
function freeName(label: string, routes: readonly Row[]): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? label : `${label}-${n}`
    if (!routes.some(route => route.name === name)) return name
  }
}

/** Why a route table would not have this route. */
function problemOf(route: Row, resolve: Readonly<Record<string, string>>): string | undefined {
  try {
    createRouter({ routes: { routes: [route], resolve } as RouteTable }).close()
    return undefined
  } catch (error) {
    return (error as Error).message.replaceAll('routes[0].', '').replaceAll('\n', '; ')
  }
}

/** frp serves only enabled proxies. A disabled one must not become reachable here. */
function reasonOff(proxy: Table, started: readonly string[]): string | undefined {
  if (proxy.flag('enabled') === false) return 'it is switched off (enabled = false)'
  return started.length > 0 && !started.includes(nameOf(proxy)) ? 'start leaves it out' : undefined
}

function migrateProxy(proxy: Table, domain: string, runtimes: Runtimes, notes: string[]): void {
  const name = nameOf(proxy)
  const type = proxy.text('type') ?? 'tcp'
  const addNote = (text: string) => {
    notes.push(`proxy ${name}: ${text}`)
  }
  if (type !== 'http' && type !== 'https') {
    addNote(`not converted: ${RAW_TYPES[type] ?? `type ${type}`}, and Sallyport carries HTTP; keep frp for it`)
    return
  }
  // Without the password, the protected service would be open.
  if (proxy.text('httpUser') !== undefined || proxy.text('httpPassword') !== undefined) {
    addNote(
      'not converted: it asks callers for a password; let the target or an identity proxy do that, then remove httpUser',
    )
    return
  }
  const target = targetOf(proxy, type, addNote)
  if (target === undefined) return
  const names = runtimesOf(proxy, domain, addNote)
  if (names.size === 0) addNote('not converted: it has neither subdomain nor customDomains')
  const paths = proxy.list('locations')
  if (paths.some(path => path !== '/')) addNote('a path matches whole segments here: /a is /a and /a/..., not /ab')
  const { address, local, ...rest } = target
  const resolve = address === local ? {} : { [address]: local }
  for (const [runtime, hosts] of names) {
    const found = runtimes.get(runtime) ?? { hosts, routes: [] as Row[], leads: new Map<string, string>() }
    if (![...hosts].some(host => found.hosts.has(host))) {
      addNote(
        `not converted: ${[...hosts].join(', ')} would share the runtime ${runtime} with ${[...found.hosts].join(', ')}`,
      )
      continue
    }
    const before = found.leads.get(address) ?? local
    if (before !== local) {
      addNote(
        `not converted: ${address} of ${runtime}.${domain} already leads to ${before}; hostHeaderRewrite tells them apart`,
      )
      continue
    }
    for (const path of paths.length === 0 ? ['/'] : paths) {
      const row = { name: freeName(labelOf(name), found.routes), match: { path }, ...rest }
      const other = found.routes.find(({ match }) => match.path === path)
      const problem =
        other === undefined ? problemOf(row, resolve) : `${other.name} already has ${path} of ${runtime}.${domain}`
      if (problem !== undefined) {
        addNote(`not converted: ${problem}`)
        continue
      }
      runtimes.set(runtime, found)
      found.leads.set(address, local)
      found.routes.push(row)
      if (!row.name.startsWith(name)) addNote(`its route is called ${row.name}`)
    }
  }
  notes.push(...left(proxy.unread).map(text => `proxy ${name}: ${text}`))
}

type AddNote = (text: string) => void

interface Target {
  readonly target: string
  readonly host?: 'target'
  readonly headers?: object
  readonly responseHeaders?: object
  /** Its host and port, and what is dialled for it. */
  readonly address: string
  readonly local: string
}

function targetOf(proxy: Table, type: string, addNote: AddNote): Target | undefined {
  const plugin = proxy.table('plugin')
  const kind = plugin.text('type')
  const scheme = kind === undefined ? (type === 'https' ? 'https' : 'http') : PLUGINS[kind]
  if (scheme === undefined) {
    addNote(`not converted: the plugin ${kind} has no counterpart`)
    return undefined
  }
  if (type === 'https') {
    for (const key of ['crtPath', 'keyPath']) plugin.text(key)
    addNote('the server terminates TLS with its own certificate; frp passes it through to the client')
  }
  if (scheme === 'https')
    addNote('the certificate of the target is checked, unlike in frp; trust a private one with tls.ca of its route')
  const local =
    kind === undefined
      ? `${proxy.text('localIP') ?? '127.0.0.1'}:${proxy.text('localPort') ?? '80'}`
      : plugin.text('localAddr')
  if (local === undefined || !/^[^\s/:]+:\d{1,5}$/.test(local)) {
    addNote(`not converted: ${local ?? 'nothing'} is not an address of a target`)
    return undefined
  }
  const from = kind === undefined ? proxy : plugin
  const host = from.text('hostHeaderRewrite')
  const port = local.slice(local.lastIndexOf(':') + 1)
  const address = host === undefined ? local : `${host.replace(/:\d+$/, '')}:${port}`
  // `resolve` leads only to IP addresses.
  const ip = address === local ? local : local.replace(/^localhost:/i, '127.0.0.1:')
  if (address !== local && !isIPv4(ip.slice(0, ip.lastIndexOf(':')))) {
    addNote(`not converted: hostHeaderRewrite needs an IP address here, and ${local} is a name`)
    return undefined
  }
  const sent = URL.parse(`${scheme}://${address}`)?.host
  if (host !== undefined && sent !== undefined && sent !== host) {
    addNote(`the target gets the Host ${sent}, with frp it was ${host}`)
  }
  const request = from.table('requestHeaders').table('set').texts()
  const response = from.table('responseHeaders').table('set').texts()
  return {
    target: `${scheme}://${address}`,
    ...(host === undefined ? {} : { host: 'target' as const }),
    ...(Object.keys(request).length === 0 ? {} : { headers: { set: request } }),
    ...(Object.keys(response).length === 0 ? {} : { responseHeaders: { set: response } }),
    address,
    local: ip,
  }
}

/** The runtimes for the hosts that a proxy is called by. */
function runtimesOf(proxy: Table, domain: string, addNote: AddNote): Map<string, Set<string>> {
  const runtimes = new Map<string, Set<string>>()
  const add = (label: string, host: string, of: string) => {
    if (isDnsLabel(label)) runtimes.set(label, (runtimes.get(label) ?? new Set()).add(host))
    else addNote(`not converted: ${of} does not make a runtime name`)
  }
  const ours = (label: string) => `${label}.${domain}`.toLowerCase()
  const subdomain = proxy.text('subdomain')
  if (subdomain !== undefined) add(subdomain.toLowerCase(), ours(subdomain), subdomain)
  for (const name of proxy.list('customDomains')) {
    const [label, host] = [name.split('.')[0]!, name.toLowerCase()]
    add(label.toLowerCase(), host, name)
    if (runtimes.has(label.toLowerCase()) && host !== ours(label)) {
      const own = isBelow(host, domain) ? '' : `, or ${name} as docs/hosts.md describes`
      addNote(`${name} is not RUNTIME.${domain}: callers use ${label}.${domain}${own}`)
    }
  }
  return runtimes
}

function left(keys: readonly string[]): string[] {
  return keys.map(key => `${key} is not converted: ${REASONS.find(([start]) => key.startsWith(start))![1]}`)
}
