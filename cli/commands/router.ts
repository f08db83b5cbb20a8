import { formatAddress } from '../../protocol/base/host-port.ts'
import { type RouterService, type RouterServiceOptions, RouteTableError, serveRouter } from '../../router/index.ts'
import { loadTls, TlsKeeper, type TlsPair, tlsFiles } from '../../server/tls.ts'
import type { Run } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import type { RouterConfig } from '../config/router.ts'
import { checkRouterConfig } from '../config/rules.ts'
import { configurationError } from '../failure.ts'
import { checkRouterFiles } from '../service/files.ts'
import { explainListenError } from '../service/listen-error.ts'
import { loadRoutes } from '../service/routes.ts'
import { runService, type Service, type ServiceContext } from '../service/run-service.ts'
import { openTracing } from '../service/tracing.ts'

export const runRouter: Run = async (args, io) => {
  const loaded = await loadFromCommandLine('router', args, io)
  checkRouterConfig(loaded.values, loaded.origins)
  await checkRouterFiles(loaded.values)
  return runService('router', loaded, io, context => start(loaded.values, context))
}

async function start(config: RouterConfig, context: ServiceContext): Promise<Service> {
  const { logger } = context
  const files = tlsFiles(config['tls.cert'], config['tls.key'])
  const tls = files && (await loadTls(files))
  const tracing = await openTracing(config, context)
  const service = await listen(config, tls, context, tracing?.options)
  logger.info({ name: 'router', address: formatAddress(service.address) }, 'listening')
  context.terminal?.banner('router', `${tls === undefined ? 'http' : 'https'}://${formatAddress(service.address)}`)
  const certificate = files && tls && new TlsKeeper(files, tls, pair => service.setTls(pair), logger)
  let isOpen = true
  return {
    ready: () => isOpen,
    status: () => ({ ...service.stats(), address: formatAddress(service.address) }),
    snapshot: () => {
      const { bodyBytesIn, bodyBytesOut } = service.stats()
      return {
        ...{ bodyBytesIn, bodyBytesOut },
        ...(certificate === undefined ? {} : { certificates: { router: certificate.expiresAt } }),
        spans: tracing?.stats(),
      }
    },
    async close(options) {
      isOpen = false
      certificate?.close()
      await service.close(options)
      await tracing?.close()
    },
  }
}

async function listen(
  config: RouterConfig,
  tls: TlsPair | undefined,
  context: ServiceContext,
  tracing: RouterServiceOptions['tracing'],
): Promise<RouterService> {
  try {
    return await serveRouter({ ...(await serviceOptions(config, tls, context)), tracing })
  } catch (error) {
    if (error instanceof RouteTableError) throw configurationError(error.message, error)
    throw explainListenError(error, 'listen', formatAddress(config.listen))
  }
}

async function serviceOptions(
  config: RouterConfig,
  tls: TlsPair | undefined,
  { logger, onExchange, sockets }: ServiceContext,
): Promise<RouterServiceOptions> {
  return {
    ...config.listen,
    fd: sockets.get('router'),
    routes: config.routes === undefined ? await loadRoutes(config, logger) : { file: config.routes },
    ...(tls === undefined ? {} : { tls }),
    trustedProxies: config['trusted-proxies'],
    ...{ logger, onExchange },
  }
}
