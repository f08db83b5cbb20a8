/** Everything that `sallyport check` checks of a component. */
import { diagnose } from '../../client/diagnose.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import type { Io } from '../command.ts'
import type { ClientConfig } from '../config/client.ts'
import type { ComponentName } from '../config/components.ts'
import type { Loaded } from '../config/load.ts'
import type { RouterConfig } from '../config/router.ts'
import { type AccessConfig, controlAddress, type ServerConfig } from '../config/server.ts'
import type { Settings } from '../config/setting.ts'
import { EXIT, Failure } from '../failure.ts'
import { readAccess } from '../service/access-files.ts'
import { loadTrust } from '../service/client-trust.ts'
import { loadRoutes } from '../service/routes.ts'
import { serverOptions } from '../service/server-options.ts'
import { openTokenSource } from '../service/token-source.ts'
import { tunnelOptions } from '../service/tunnel-options.ts'
import { probeCallers } from './callers.ts'
import { probeAuthorities } from './certificates.ts'
import { probeDirectory } from './directory.ts'
import { probeKeySet, probeRevocations } from './documents.ts'
import { probeInbox } from './inbox.ts'
import { type AddressesBySetting, probeListeners } from './listeners.ts'
import { filesWithRoutes, serverFiles } from './offline.ts'
import { probePublicUrl } from './public-url.ts'
import { refuseClient, refuseRouter, refuseServer } from './refusals.ts'
import { probeTracing } from './tracing.ts'
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
    const operators = operatorListeners(values as ServerConfig, isGiven)
    const [probes, tracing] = await Promise.all([
      PROBES[component](values as never, operators, deep),
      probeTracing(component, values as ServerConfig, environment),
    ])
    const found = warnings.join('; ') || 'valid'
    const others = await more(values as never)
    return [
      { ...about, status: warnings.length > 0 ? 'warn' : 'ok', found, hint: '' },
      ...probes,
      ...tracing,
      ...others,
    ]
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
  const sets = await readAccess(config)
  const { auth, inbox } = serverOptions(config, sets, new Map())
  const services = await Promise.all([
    probeKeySet('--auth.jwks', auth.jwks, auth.algorithms ?? DEFAULT_ALGORITHMS, 'clients'),
    probeRevocations('--auth.revocations', auth.revocations),
    probeCallers(config, sets),
    probeDirectory(config),
    probeInbox(inbox),
  ])
  const files = [...(await serverFiles(config)), ...(await authorities(config, sets))]
  return [...files, ...probePublicUrl(config), ...listeners, ...services.flat()]
}

/** Those of certificates that others show to the server. */
async function authorities(config: ServerConfig, sets: readonly AccessConfig[]): Promise<Probe[]> {
  const named = (['control.tls.client-ca', 'peer.tls.ca'] as const).map(flag => [flag, config[flag]] as const)
  const callers = sets.map(set => ['access.client-ca', set['access.client-ca']] as const)
  const probes = [...named, ...callers].map(async ([flag, file]) => {
    return file === undefined ? [] : [await probeAuthorities(flag, file)]
  })
  return (await Promise.all(probes)).flat()
}
