/** Everything that `sallyport check` checks of a component. */
import { diagnose } from '../../client/diagnose.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import type { Io } from '../command.ts'
import type { ClientConfig } from '../config/client.ts'
import type { ComponentName } from '../config/components.ts'
import type { Loaded } from '../config/load.ts'
import type { RouterConfig } from '../config/router.ts'
import { controlAddress, type ServerConfig } from '../config/server.ts'
import type { Settings } from '../config/setting.ts'
import { EXIT, Failure } from '../failure.ts'
import { readInput } from '../options.ts'
import { loadTrust } from '../service/client-trust.ts'
import { loadRoutes } from '../service/routes.ts'
import { openTokenSource } from '../service/token-source.ts'
import { tunnelOptions } from '../service/tunnel-options.ts'
import { probeDirectory } from './directory.ts'
import { probeInbox } from './inbox.ts'
import { probeKeySet } from './key-set.ts'
import { type AddressesBySetting, probeListeners } from './listeners.ts'
import { filesWithRoutes, serverFiles } from './offline.ts'
import { refuseClient, refuseRouter, refuseServer } from './refusals.ts'
import { probeUpstreams } from './upstreams.ts'

interface CheckOptions {
  /** Also runs the checks that take long. */
  readonly deep?: boolean
  readonly environment: Io['environment']
  /** Further checks that were asked for. */
  readonly more?: ((config: never) => Promise<Probe[]>) | undefined
}

/** Throws only for a wrong command line. */
export async function checkComponent(
  component: ComponentName,
  load: () => Promise<Pick<Loaded<Settings>, 'origins' | 'warnings'> & { readonly values: unknown }>,
  { deep = false, environment, more = async () => [] }: CheckOptions,
): Promise<Probe[]> {
  const about = { code: 'configuration', what: `settings and files of the ${component}`, expected: 'valid' }
  try {
    const { values, origins, warnings } = await load()
    const isGiven = origins.get('admin.listen')?.source !== 'default'
    await REFUSALS[component](values as never, environment, origins)
    const probes = await PROBES[component](values as never, operatorListeners(values as ServerConfig, isGiven), deep)
    const found = warnings.join('; ') || 'valid'
    const others = await more(values as never)
    return [{ ...about, status: warnings.length > 0 ? 'warn' : 'ok', found, hint: '' }, ...probes, ...others]
  } catch (error) {
    const isBad = error instanceof TypeError || (error instanceof Failure && error.exitCode !== EXIT.usage)
    if (!isBad) throw error
    return [{ ...about, status: 'fail', found: error.message, hint: 'Correct it and check again.' }]
  }
}

/** The report that `--json` prints. */
export function checkReport(component: ComponentName, probes: readonly Probe[]): object {
  return { schema: 1, component, probes: probes.map(probe => ({ ...probe, docs: `docs/check.md#${probe.code}` })) }
}

/** The admin and health listeners. If the default port of the admin listener is taken, another is used, so that is no fault. */
function operatorListeners(
  { 'admin.listen': admin, 'health.listen': health }: Pick<ServerConfig, 'admin.listen' | 'health.listen'>,
  isGiven: boolean,
): AddressesBySetting {
  return {
    'admin.listen': admin === 'off' || !isGiven ? undefined : admin,
    'health.listen': health === 'off' ? undefined : health,
  }
}

/** Each throws the error with which the component itself would refuse to start. */
const REFUSALS = { client: refuseClient, server: refuseServer, router: refuseRouter } as const

const PROBES = { client: checkClient, server: checkServer, router: checkRouter } as const satisfies Record<
  ComponentName,
  (config: never, operators: AddressesBySetting, deep: boolean) => Promise<Probe[]>
>

async function checkRouter(config: RouterConfig, operators: AddressesBySetting): Promise<Probe[]> {
  const table = await loadRoutes(config)
  const listeners = await probeListeners({ listen: config.listen, ...operators })
  return [...(await filesWithRoutes(config)), ...listeners, ...(await probeUpstreams(table))]
}

async function checkClient(config: ClientConfig, operators: AddressesBySetting, deep: boolean): Promise<Probe[]> {
  const files = [...(await filesWithRoutes(config)), ...(await probeListeners(operators))]
  const source = await openTokenSource(config, noLogger)
  try {
    const trust = await loadTrust(config)
    const options = { ...tunnelOptions(config), ...trust, token: source.source, target: 'http://127.0.0.1' }
    const network = diagnose(options, { deep })
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

async function checkServer(config: ServerConfig, operators: AddressesBySetting): Promise<Probe[]> {
  const listeners = await probeListeners({
    'public.listen': config['public.listen'],
    'control.listen': controlAddress(config),
    'peer.listen': config['peer.listen'],
    ...operators,
  })
  const { 'auth.jwks.url': url, 'auth.jwks.ca': ca } = config
  const keys = url === undefined ? [] : [await probeKeySet(url, ca && readInput(ca, 'the authorities of the key set'))]
  const [directory, inbox] = await Promise.all([probeDirectory(config), probeInbox(config)])
  return [...(await serverFiles(config)), ...listeners, ...keys, ...directory, ...inbox]
}
