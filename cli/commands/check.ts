import { diagnose } from '../../client/diagnose.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import type { Arguments } from '../args.ts'
import { probeKeySet } from '../check/key-set.ts'
import { probeListeners } from '../check/listeners.ts'
import { clientFiles, routerFiles, serverFiles } from '../check/offline.ts'
import { probeUpstreams } from '../check/upstreams.ts'
import type { Io } from '../command.ts'
import type { ClientConfig } from '../config/client.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import type { ComponentName } from '../config/components.ts'
import type { RouterConfig } from '../config/router.ts'
import { checkClientConfig, checkRouterConfig, checkServerConfig } from '../config/rules.ts'
import type { ServerConfig } from '../config/server.ts'
import { EXIT, Failure } from '../failure.ts'
import { hasSwitch, readInput } from '../options.ts'
import { loadTrust } from '../service/client-trust.ts'
import { checkClientFiles, checkRouterFiles, checkServerFiles } from '../service/files.ts'
import { loadRoutes } from '../service/routes.ts'
import { openTokenSource } from '../service/token-source.ts'
import { controlAddress } from './server.ts'
import { tunnelOptions, withTarget } from './client.ts'
import { terminalJson } from '../plain-text.ts'
import { printable } from '../table.ts'

/** `sallyport check COMPONENT` */
export async function check(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const probes = await PROBES[component](args, io)
  if (hasSwitch(args, 'json')) io.out(`${terminalJson({ schema: 1, component, probes: probes.map(withDocs) }, 2)}\n`)
  else for (const probe of probes) io.out(textOf(probe))
  return probes.some(({ status }) => status === 'fail') ? EXIT.checkFailed : EXIT.ok
}

const PROBES: Record<ComponentName, (args: Arguments, io: Io) => Promise<Probe[]>> = {
  async client(args, io) {
    const { values, probe } = await configuration<ClientConfig>('client', withTarget(args), io, async config => {
      checkClientConfig(config)
      await checkClientFiles(config)
    })
    return values === undefined ? [probe] : [probe, ...(await checkClient(values))]
  },
  async server(args, io) {
    const { values, probe } = await configuration<ServerConfig>('server', args, io, async config => {
      checkServerConfig(config)
      await checkServerFiles(config)
    })
    return values === undefined ? [probe] : [probe, ...(await checkServer(values))]
  },
  async router(args, io) {
    const { values, probe } = await configuration<RouterConfig>('router', args, io, async config => {
      checkRouterConfig(config)
      await checkRouterFiles(config)
    })
    if (values === undefined) return [probe]
    const files = await routerFiles(values)
    const listeners = await probeListeners({ listen: values.listen })
    return [probe, ...files, ...listeners, ...(await probeUpstreams(await loadRoutes(values)))]
  },
}

/** Settings and files, as the component itself would refuse them. A usage error is the command's own. */
async function configuration<Config>(
  component: ComponentName,
  args: Arguments,
  io: Io,
  validate: (config: Config) => Promise<void>,
): Promise<{ probe: Probe; values?: Config }> {
  const about = { code: 'configuration', what: `settings and files of the ${component}`, expected: 'valid' }
  try {
    const { values, warnings } = await loadFromCommandLine(component, args, io)
    await validate(values as Config)
    const found = warnings.join('; ') || 'valid'
    return {
      probe: { ...about, status: warnings.length > 0 ? 'warn' : 'ok', found, hint: '' },
      values: values as Config,
    }
  } catch (error) {
    if (!(error instanceof Failure) || error.exitCode === EXIT.usage) throw error
    return { probe: { ...about, status: 'fail', found: error.message, hint: 'Mend it, and check again.' } }
  }
}

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

/** Where the documentation says more. */
function withDocs(probe: Probe): object {
  return { ...probe, docs: `docs/check.md#${probe.code}` }
}

function textOf({ code, status, what, found, expected, hint }: Probe): string {
  const line = `${status.padEnd(4)}  ${code.padEnd(14)}  ${printable(what)}: ${printable(found)}\n`
  if (status === 'ok' || status === 'skip') return line
  const more = [`expected: ${expected}`, ...(hint === '' ? [] : [printable(hint)])]
  return line + more.map(text => `${' '.repeat(22)}${text}\n`).join('')
}
