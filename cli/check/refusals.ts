/** Everything that a component would refuse to start with, as far as it shows without listening and without the network. */
import { checkOptions } from '../../client/options.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { createForwarder } from '../../router/forward.ts'
import { resolveOptions } from '../../server/options.ts'
import type { ClientConfig } from '../config/client.ts'
import type { RouterConfig } from '../config/router.ts'
import { checkClientConfig, checkRouterConfig, checkServerConfig } from '../config/rules.ts'
import type { ServerConfig } from '../config/server.ts'
import { ofMisuse } from '../failure.ts'
import { readAccess } from '../service/access-files.ts'
import { loadTrust } from '../service/client-trust.ts'
import { checkClientFiles, checkRouterFiles, checkServerFiles } from '../service/files.ts'
import { serverOptions } from '../service/server-options.ts'
import { openTokenSource } from '../service/token-source.ts'
import { checkTracing } from '../service/tracing.ts'
import { tunnelOptions } from '../service/tunnel-options.ts'

type Environment = Parameters<typeof checkTracing>[1]
type Places = Parameters<typeof checkClientConfig>[1]

/** These functions throw a Failure. `environment` holds the variables of OpenTelemetry. */
export async function refuseServer(config: ServerConfig, environment: Environment): Promise<void> {
  checkServerConfig(config)
  const callers = await readAccess(config)
  await checkServerFiles(config, callers)
  await checkTracing(config, environment)
  attempt(() => resolveOptions(serverOptions(config, callers, new Map())))
}

export async function refuseClient(config: ClientConfig, environment: Environment, places?: Places): Promise<void> {
  checkClientConfig(config, places)
  await checkClientFiles(config)
  await checkTracing(config, environment)
  const { target } = config
  if (target !== undefined) attempt(() => createForwarder(target).close())
  const token = await openTokenSource(config, noLogger)
  token.close()
  const rest = { ...(await loadTrust(config)), token: token.source, target: 'http://127.0.0.1' }
  attempt(() => checkOptions({ ...tunnelOptions(config), ...rest }, { cors: [] }))
}

export async function refuseRouter(config: RouterConfig, environment: Environment, places?: Places): Promise<void> {
  checkRouterConfig(config, places)
  await checkRouterFiles(config)
  await checkTracing(config, environment)
}

function attempt(read: () => unknown): void {
  try {
    read()
  } catch (error) {
    throw ofMisuse(error)
  }
}
