import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { AdminListener } from '../../admin/listener.ts'
import type { MetricsOptions } from '../../admin/metrics.ts'
import type { AdminSource } from '../../admin/page.ts'
import type { Snapshot } from '../../admin/snapshot.ts'
import { logGuard } from '../../protocol/base/guard.ts'
import type { HostPort } from '../../protocol/base/host-port.ts'
import { formatAddress } from '../../protocol/base/host-port.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { packageVersion } from '../../protocol/base/version.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { checkAdminConfig } from '../config/rules.ts'
import { PAGE_ADVICE } from '../terminal/advice.ts'
import { readAdminTokenFile } from './admin-token.ts'
import type { GivenSockets } from './given-sockets.ts'
import { explainListenError } from './listen-error.ts'

/** How often bytes are counted for the page. */
const COUNT_MS = 1000
/** How often the runtime file is looked for: temporary folders are cleaned after some days, and a user's goes with the last session. */
const LOOK_MS = 60_000

interface AdminConfig {
  component: 'server' | 'client' | 'router'
  admin: HostPort | 'off'
  /** Whether the address was given rather than the default. */
  isGiven: boolean
  tokenFile: string | undefined
  health: HostPort | 'off'
  sockets: GivenSockets
  /** Another process may serve the same health address. */
  reusePort: boolean
  environment: Readonly<Record<string, string | undefined>>
  logger: Logger
  /** For `/diag`: adds what else the component reports about itself. */
  diagnose(more: Readonly<Record<string, unknown>>, profileS: number): Promise<object>
}

/** What the component shows. Set once it exists, because the listeners need not wait for it. */
export interface AdminView
  extends Pick<AdminSource, 'ready' | 'status' | 'inspector' | 'views' | 'streams' | 'actions'> {
  snapshot(): Snapshot
  /** Live sessions, for servers. */
  readonly sessions?: MetricsOptions['sessions']
}

interface Admin {
  /** Counts an exchange that has ended, for the metrics and the page. */
  record(exchange: ExchangeRecord): void
  /** A link that opens the page once, within ten minutes. Undefined without an admin listener. */
  link(): string | undefined
  /** From now on, `/readyz` and `/status` show the component. */
  show(view: AdminView): void
  /** From now on, `/readyz` answers 503. */
  stopping(): void
  close(): Promise<void>
}

/** Starts metrics and the configured listeners. */
export async function startAdmin(config: AdminConfig): Promise<Admin> {
  const { createMetrics, listenHealth, Traffic } = await import('../../admin/index.ts')
  let view: AdminView | undefined
  let isStopping = false
  const version = packageVersion()
  const metrics = createMetrics({
    component: config.component,
    version,
    snapshot: () => view?.snapshot() ?? {},
    sessions: () => view?.sessions?.() ?? [],
  })
  const startedAt = new Date().toISOString()
  const traffic = new Traffic()
  let diagnosis: Promise<object> | undefined
  /** Concurrent requests share one diagnosis. */
  const diagnose = (query: URLSearchParams) => {
    diagnosis ??= runDiagnosis(Number(query.get('profile'))).finally(() => {
      diagnosis = undefined
    })
    return diagnosis
  }
  const runDiagnosis = async (profileS: number) => {
    const { text } = await source.metrics()
    return await config.diagnose({ status: source.status(), metrics: text }, profileS)
  }
  const source: AdminSource = {
    ready: () => !isStopping && (view?.ready() ?? false),
    isStarting: () => view === undefined,
    status: () => ({
      component: config.component,
      version,
      startedAt,
      ready: source.ready(),
      ...asObject(view?.status()),
    }),
    traffic,
    advice: PAGE_ADVICE,
    metrics: accept => metrics.expose(accept),
    runtimeMetrics: config.component === 'server' ? accept => metrics.exposeRuntimes(accept) : undefined,
    get views() {
      return { ...view?.views, '/diag': diagnose }
    },
    get inspector() {
      return view?.inspector
    },
    get streams() {
      return view?.streams
    },
    get actions() {
      return view?.actions
    },
  }
  const health = config.health === 'off' ? undefined : await startHealth(config.health)
  const admin = config.admin === 'off' ? undefined : await startListener(config, config.admin, source)
  const guard = logGuard(config.logger, 'the bytes for the page could not be counted')
  const count = guard(() => traffic.count(view?.snapshot() ?? {}))
  const counting = admin && setInterval(count, COUNT_MS).unref()
  return {
    record(exchange) {
      metrics.record(exchange)
      if (admin !== undefined) traffic.note(exchange)
    },
    link: () => admin && `${admin.url}/#${admin.listener.code()}`,
    show: shown => {
      view = shown
    },
    stopping: () => {
      isStopping = true
    },
    async close() {
      metrics.close()
      clearInterval(counting)
      admin?.forget()
      await Promise.all([admin?.listener.close(), health?.close()])
    },
  }

  async function startHealth(address: HostPort): Promise<AdminListener> {
    try {
      const listener = await listenHealth({
        ...address,
        fd: config.sockets.get('health'),
        reusePort: config.reusePort,
        source,
      })
      config.logger.info({ name: 'health', address: formatAddress(listener.address) }, 'listening')
      return listener
    } catch (error) {
      throw explainListenError(error, 'health.listen', formatAddress(address))
    }
  }
}

function asObject(value: unknown): object {
  return typeof value === 'object' && value !== null ? value : {}
}

interface Opened {
  readonly listener: PageListener
  /** URL for use on this machine. */
  readonly url: string
  /** Removes the runtime file. */
  readonly forget: () => void
}

type PageListener = AdminListener & { code(): string }

async function startListener(config: AdminConfig, address: HostPort, source: AdminSource): Promise<Opened> {
  const { listenAdmin, randomToken } = await import('../../admin/index.ts')
  const random = randomToken()
  const { tokenFile } = config
  const token = tokenFile === undefined ? () => random : () => readAdminTokenFile(tokenFile)
  if (tokenFile !== undefined) await readAdminTokenFile(tokenFile)
  const listener = await listenOrFree(config, address, port =>
    listenAdmin({
      host: address.host,
      port,
      fd: config.sockets.get('admin'),
      source,
      token,
      logger: config.logger,
    }),
  )
  try {
    // A socket that was passed in has its own address, whatever the flag says.
    checkAdminConfig(listener.address, tokenFile)
  } catch (error) {
    await listener.close()
    throw error
  }
  config.logger.info({ name: 'admin', address: formatAddress(listener.address) }, 'listening')
  const secret = tokenFile === undefined ? { token: random } : { tokenFile: resolve(tokenFile) }
  const { host, port } = listener.address
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  const url = `http://${formatAddress({ host: reachable, port })}`
  return { listener, url, forget: await keepRuntimeFile(config, url, secret) }
}

/** If the default port is taken, uses a free one. A given port that is taken is an error. */
async function listenOrFree(
  config: AdminConfig,
  address: HostPort,
  listen: (port: number) => Promise<PageListener>,
): Promise<PageListener> {
  try {
    return await listen(address.port)
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
    if (!isTaken || config.isGiven) throw explainListenError(error, 'admin.listen', formatAddress(address))
    config.logger.warn({ address: formatAddress(address) }, 'the default admin port is taken; another is used')
    return listen(0)
  }
}

/** Writes the runtime file, and again whenever somebody has removed it. Returns what ends this. */
async function keepRuntimeFile(
  { component, environment, logger }: AdminConfig,
  url: string,
  secret: { token: string } | { tokenFile: string },
): Promise<() => void> {
  const { removeRuntimeFile, writeRuntimeFile } = await import('../../admin/index.ts')
  let path: string | undefined
  let hasFailed = false
  const look = () => {
    if (path !== undefined && existsSync(path)) return
    try {
      path = writeRuntimeFile({ component, pid: process.pid, url, ...secret }, environment)
      hasFailed = false
    } catch (error) {
      if (!hasFailed) logger.warn({ err: error }, '`sallyport status` will not find this process automatically')
      hasFailed = true
    }
  }
  look()
  const guard = logGuard(logger, 'the runtime file could not be looked for')
  const timer = setInterval(guard(look), LOOK_MS).unref()
  return () => {
    clearInterval(timer)
    if (path !== undefined) removeRuntimeFile(path)
  }
}
