import type { MatchResult } from '../../router/explain.ts'
import { createRouter } from '../../router/router.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { COMPONENTS } from '../config/components.ts'
import { loadConfig } from '../config/load.ts'
import type { RouterConfig } from '../config/router.ts'
import { EXIT, usageError } from '../failure.ts'
import { optionalFlag, parseHeader } from '../options.ts'
import { printResult } from '../print.ts'
import { loadRoutes } from '../service/routes.ts'
import { facts, printable } from '../table.ts'

/** `sallyport route test`: exits with 0 if a route takes the URL, else with 1. */
export const routeTest: Run = async (args, io) => {
  const config = await routeConfig(args)
  if (config.routes === undefined && config.preset === undefined) throw usageError('--routes is missing')
  const router = createRouter({ routes: await loadRoutes(config) })
  const result = router.match({
    url: args.positionals[0]!,
    method: optionalFlag(args, 'method'),
    caller: optionalFlag(args, 'caller'),
    headers: Object.fromEntries((args.flags.get('header') ?? []).map(parseHeader)),
  })
  await router.close()
  printResult(args, io, result, () => describe(result))
  return result.outcome === 'refuse' ? EXIT.runtime : EXIT.ok
}

/** Settings from the flags that this command shares with the router, and from the file of a client or router. Variables are ignored. */
async function routeConfig(args: Arguments): Promise<RouterConfig> {
  const flags = new Map([...args.flags].filter(([name]) => Object.hasOwn(COMPONENTS.router, name)))
  const sources = { flags, environment: {}, configFile: optionalFlag(args, 'config'), everyName: [] }
  return (await loadConfig({ ...COMPONENTS.client, ...COMPONENTS.router }, sources)).values
}

function describe(result: MatchResult): string {
  const captures = Object.entries(result.captures).map(([name, value]) => `${name}=${value}`)
  const rows: [string, string | number | undefined][] = [
    ['route', result.route ?? 'none'],
    ['captures', captures.length === 0 ? undefined : captures.join(', ')],
    ['target', result.target],
    ['dials', result.dial],
    ['path', result.path],
    ['host', result.host],
    ['status', result.status],
    ['code', result.code],
    ['why', result.explanation],
  ]
  return facts(
    rows.flatMap(([name, value]) => (value === undefined ? [] : [[name, printable(value)]])),
    9,
  )
}
