import { messageOf } from '../../protocol/base/errors.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { RouteTable } from '../../router/table.ts'
import { configurationError } from '../failure.ts'

/** The routing settings of the client and the router. */
export interface RouteConfig {
  readonly routes: string | undefined
  readonly preset: 'gitops-runtime' | undefined
  readonly 'preset.namespaces': readonly string[] | undefined
  readonly 'preset.event-sources': readonly string[] | undefined
  readonly 'preset.cors-origin': readonly string[] | undefined
  readonly 'preset.cluster-domain': string
  readonly 'preset.app-proxy': string
  readonly 'preset.workflows': string
  /** Only for clients. */
  readonly 'preset.inbox'?: 'off' | 'fallback' | 'always'
}

/** Loads the table from the file or the preset. A bad file is a configuration error that lists every problem. */
export async function loadRoutes(config: RouteConfig, logger?: Logger): Promise<RouteTable> {
  if (config.routes === undefined) return presetRoutes(config, logger)
  const { readRoutes } = await import('../../router/table-file.ts')
  try {
    return await readRoutes(config.routes)
  } catch (error) {
    throw configurationError(messageOf(error), error)
  }
}

async function presetRoutes(config: RouteConfig, logger: Logger | undefined): Promise<RouteTable> {
  const { gitopsRuntime } = await import('../../router/preset.ts')
  const { compileTable } = await import('../../router/compile.ts')
  const table = gitopsRuntime({
    namespaces: config['preset.namespaces'],
    eventSources: config['preset.event-sources'],
    corsOrigins: config['preset.cors-origin'],
    clusterDomain: config['preset.cluster-domain'],
    appProxy: config['preset.app-proxy'],
    workflows: config['preset.workflows'],
    inbox: config['preset.inbox'],
    logger,
  })
  try {
    compileTable(table)
  } catch (error) {
    throw configurationError(`--preset ${config.preset}: ${(error as Error).message}`, error)
  }
  return table
}
