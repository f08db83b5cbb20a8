import { readFile } from 'node:fs/promises'
import type { HandlerTarget } from '../../client/index.ts'
import type { Logger } from '../../protocol/log.ts'
import { createRouter } from '../../router/router.ts'
import { configurationError } from '../failure.ts'
import { loadRoutes, type RouteConfig } from './routes.ts'

/** Where a client's requests go. */
export interface EmbeddedTarget {
  readonly target: HandlerTarget
  close(): Promise<void>
}

/** The router inside the client: its table from the file, which is watched, or from the preset. */
export async function embedRouter(config: RouteConfig, logger: Logger): Promise<EmbeddedTarget> {
  if (config.routes === undefined) {
    const router = createRouter({ routes: await loadRoutes(config, logger), logger })
    return { target: router, close: () => router.close() }
  }
  const file = config.routes
  const { parseRoutes } = await import('../../router/table-file.ts')
  const { watchRoutes } = await import('../../router/watch.ts')
  try {
    const text = await readFile(file, 'utf8')
    const router = createRouter({ routes: parseRoutes(text, file), logger })
    const watcher = watchRoutes(text, { file, parse: parseRoutes, onTable: table => router.reload(table), logger })
    const close = () => {
      watcher.close()
      return router.close()
    }
    return { target: router, close }
  } catch (error) {
    throw configurationError((error as Error).message, error)
  }
}
