import { readFile } from 'node:fs/promises'
import { type RouterService, type RouterServiceOptions, RouteTableError, serveRouter } from '../../router/index.ts'
import { TlsKeeper } from '../../server/tls.ts'
import type { Run } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import { formatAddress } from '../config/kinds.ts'
import type { RouterConfig } from '../config/router.ts'
import { checkRouter } from '../config/rules.ts'
import { configurationError } from '../failure.ts'
import { checkRouterFiles } from '../service/files.ts'
import { explainListenError } from '../service/listen-error.ts'
import { loadRoutes } from '../service/routes.ts'
import { runService, type Service, type ServiceContext } from '../service/run-service.ts'

/** `sallyport router` */
export const runRouter: Run = async (args, io) => {
  const loaded = await loadFromCommandLine('router', args, io)
  checkRouter(loaded.values)
  await checkRouterFiles(loaded.values)
  return runService('router', loaded, io, context => start(loaded.values, context))
}

async function start(config: RouterConfig, context: ServiceContext): Promise<Service> {
  const { logger } = context
  const service = await listen(config, context)
  logger.info({ name: 'router', address: formatAddress(service.address) }, 'listening')
  const certificate = watchCertificate(config, service, context)
  let isOpen = true
  return {
    ready: () => isOpen,
    status: () => ({ ...service.stats(), address: formatAddress(service.address) }),
    snapshot: () => ({}),
    async close(options) {
      isOpen = false
      certificate?.close()
      await service.close(options)
    },
  }
}

async function listen(config: RouterConfig, context: ServiceContext): Promise<RouterService> {
  try {
    return await serveRouter({ ...(await serviceOptions(config, context)), ...context })
  } catch (error) {
    if (error instanceof RouteTableError) throw configurationError(error.message, error)
    throw explainListenError(error, 'listen', formatAddress(config.listen))
  }
}

async function serviceOptions(config: RouterConfig, { logger }: ServiceContext): Promise<RouterServiceOptions> {
  const { 'tls.cert': cert, 'tls.key': key } = config
  return {
    ...config.listen,
    routes: config.routes === undefined ? await loadRoutes(config, logger) : { file: config.routes },
    ...(cert === undefined ? {} : { tls: { cert: await readFile(cert), key: await readFile(key!) } }),
    trustedProxies: config['trusted-proxies'],
  }
}

function watchCertificate(config: RouterConfig, service: RouterService, { logger }: ServiceContext) {
  const { 'tls.cert': cert, 'tls.key': key } = config
  if (cert === undefined) return undefined
  return new TlsKeeper({ cert: { file: cert }, key: { file: key! } }, pair => service.setTls(pair), logger)
}
