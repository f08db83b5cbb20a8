import type { HandlerTarget } from '../../client/index.ts'
import { checkHello } from '../../client/options.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { compileTable } from '../../router/compile.ts'
import { publishedRules } from '../../router/compile-cors.ts'
import { createRouter } from '../../router/router.ts'
import type { RouteTable } from '../../router/table.ts'
import { configurationError } from '../failure.ts'
import { loadRoutes, type RouteConfig } from './routes.ts'

/** Where a client's requests go. */
export interface EmbeddedTarget {
  readonly target: HandlerTarget
  /** Calls `listener` whenever a changed table is in force. */
  follow(listener: () => void): void
  close(): Promise<void>
}

/** The routes of the client's router, and who may call. `hello` carries both. */
export interface EmbeddedConfig extends RouteConfig {
  readonly 'allow.callers': readonly string[] | undefined
}

/** Throws if `hello` cannot carry these routes together with the list of callers. */
export function checkPublishedRules(table: RouteTable, config: EmbeddedConfig): RouteTable {
  const rules = publishedRules(table.routes).map(({ path, cors }) => ({ path, ...cors }))
  try {
    checkHello({ allowCallers: config['allow.callers'] }, { cors: rules, inbox: compileTable(table).inbox })
  } catch (error) {
    throw configurationError(`${config.routes ?? '--preset.cors-origin'}: ${(error as Error).message}`, error)
  }
  return table
}

/** Creates the router inside the client, with a table from the file, which is watched, or from the preset. */
export async function embedRouter(config: EmbeddedConfig, logger: Logger): Promise<EmbeddedTarget> {
  if (config.routes === undefined) {
    const router = createRouter({ routes: checkPublishedRules(await loadRoutes(config, logger), config), logger })
    return { target: router, follow() {}, close: () => router.close() }
  }
  const file = config.routes
  const { parseRoutes, readTable } = await import('../../router/table-file.ts')
  const { watchRoutes } = await import('../../router/watch.ts')
  const parse = (text: string, name: string) => checkPublishedRules(parseRoutes(text, name), config)
  try {
    const text = await readTable(file)
    const table = parse(text, file)
    const router = createRouter({ routes: table, logger })
    let reloaded = () => {}
    const onTable = (table: RouteTable) => {
      router.reload(table)
      reloaded()
    }
    const follow = (listener: () => void) => {
      reloaded = listener
    }
    const watcher = watchRoutes(text, table, { file, parse, onTable, logger })
    const close = () => {
      watcher.close()
      return router.close()
    }
    return { target: router, follow, close }
  } catch (error) {
    throw configurationError((error as Error).message, error)
  }
}
