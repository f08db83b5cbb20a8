/** All that `sallyport check` tries of a component. */
import { diagnose } from '../../client/diagnose.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import type { ClientConfig } from '../config/client.ts'
import type { ComponentName } from '../config/components.ts'
import type { Loaded } from '../config/load.ts'
import type { RouterConfig } from '../config/router.ts'
import { checkClientConfig, checkRouterConfig, checkServerConfig } from '../config/rules.ts'
import { controlAddress, type ServerConfig } from '../config/server.ts'
import type { Settings } from '../config/setting.ts'
import { EXIT, Failure } from '../failure.ts'
import { readInput } from '../options.ts'
import { loadTrust } from '../service/client-trust.ts'
import { checkClientFiles, checkRouterFiles, checkServerFiles } from '../service/files.ts'
import { loadRoutes } from '../service/routes.ts'
import { openTokenSource } from '../service/token-source.ts'
import { tunnelOptions } from '../service/tunnel-options.ts'
import { probeKeySet } from './key-set.ts'
import { probeListeners } from './listeners.ts'
import { clientFiles, routerFiles, serverFiles } from './offline.ts'
import { probeUpstreams } from './upstreams.ts'

/** Throws for a wrong command line alone. */
export async function checkComponent(
  component: ComponentName,
  load: () => Promise<Pick<Loaded<Settings>, 'warnings'> & { readonly values: unknown }>,
): Promise<Probe[]> {
  const about = { code: 'configuration', what: `settings and files of the ${component}`, expected: 'valid' }
  try {
    const { values, warnings } = await load()
    const probes = await PROBES[component](values as never)
    const found = warnings.join('; ') || 'valid'
    return [{ ...about, status: warnings.length > 0 ? 'warn' : 'ok', found, hint: '' }, ...probes]
  } catch (error) {
    const isBad = error instanceof TypeError || (error instanceof Failure && error.exitCode !== EXIT.usage)
    if (!isBad) throw error
    return [{ ...about, status: 'fail', found: error.message, hint: 'Mend it, and check again.' }]
  }
}

/** As `--json` prints it. */
export function checkReport(component: ComponentName, probes: readonly Probe[]): object {
  return { schema: 1, component, probes: probes.map(probe => ({ ...probe, docs: `docs/check.md#${probe.code}` })) }
}

/** Each throws what the component itself would refuse to start with. */
const PROBES = {
  async client(config: ClientConfig) {
    checkClientConfig(config)
    await checkClientFiles(config)
    return await checkClient(config)
  },
  async server(config: ServerConfig) {
    checkServerConfig(config)
    await checkServerFiles(config)
    return await checkServer(config)
  },
  async router(config: RouterConfig) {
    checkRouterConfig(config)
    await checkRouterFiles(config)
    const table = await loadRoutes(config)
    const listeners = await probeListeners({ listen: config.listen })
    return [...(await routerFiles(config)), ...listeners, ...(await probeUpstreams(table))]
  },
} as const satisfies Record<ComponentName, (config: never) => Promise<Probe[]>>

async function checkClient(config: ClientConfig): Promise<Probe[]> {
  const files = await clientFiles(config)
  const source = await openTokenSource(config, noLogger)
  try {
    const trust = await loadTrust(config)
    const network = diagnose({ ...tunnelOptions(config), ...trust, token: source.source, target: 'http://127.0.0.1' })
    return [...files, ...(await network), ...(await probeUpstreams(await tableOf(config)))]
  } finally {
    source.close()
  }
}

/** A `--target` is a table of one route. */
async function tableOf(config: ClientConfig): ReturnType<typeof loadRoutes> {
  if (config.target === undefined) return await loadRoutes(config)
  const { protocol, host } = new URL(config.target)
  return { routes: [{ name: 'target', match: {}, target: `${protocol}//${host}` }] }
}

async function checkServer(config: ServerConfig): Promise<Probe[]> {
  const listeners = await probeListeners({
    'public.listen': config['public.listen'],
    'control.listen': controlAddress(config),
    'peer.listen': config['peer.listen'],
  })
  const { 'auth.jwks.url': url, 'auth.jwks.ca': ca } = config
  const keys = url === undefined ? [] : [await probeKeySet(url, ca && readInput(ca, 'the authorities of the key set'))]
  return [...(await serverFiles(config)), ...listeners, ...keys]
}
