import { configurationError, type Failure, usageError } from '../failure.ts'
import { readEnvironment } from './environment.ts'
import { environmentName, type Setting, type Settings, type Values } from './setting.ts'
import { readConfigFile } from './yaml-file.ts'

/** Where a value came from, as `config print` shows it. */
interface Origin {
  readonly source: 'flag' | 'environment' | 'file' | 'default'
  /** `--domain`, `SALLYPORT_DOMAIN`, `server.yaml:3:1`; empty for a default. */
  readonly where: string
  /** The value as written. */
  readonly raw: unknown
}

export interface Loaded<S extends Settings> {
  readonly values: Values<S>
  /** By name, only for settings that have a value. */
  readonly origins: ReadonlyMap<string, Origin>
  readonly warnings: readonly string[]
}

interface LoadSources {
  readonly flags: ReadonlyMap<string, readonly string[]>
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly configFile: string | undefined
  /** Names of the settings of all components. A variable for another component is not a mistake. */
  readonly everyName: Iterable<string>
}

export type Origins = Pick<Loaded<Settings>, 'origins' | 'warnings'>

/** Reads a component's settings: flag over environment over file over default. */
export async function loadConfig<S extends Settings>(settings: S, sources: LoadSources): Promise<Loaded<S>> {
  return readValues(settings, await findOrigins(settings, sources))
}

/** The origin of each setting, whether or not its value is valid. */
export async function findOrigins(settings: Settings, sources: LoadSources): Promise<Origins> {
  const environment = readEnvironment(settings, sources.environment, sources.everyName)
  const { configFile: path } = sources
  const file = path === undefined ? new Map() : await readConfigFile(path, settings)
  const origins = new Map<string, Origin>()
  for (const [name, setting] of Object.entries(settings)) {
    const origin = findOrigin(name, setting, sources.flags, environment.values, file)
    if (origin) origins.set(name, origin)
  }
  return { origins, warnings: environment.warnings }
}

export function readValues<S extends Settings>(settings: S, { origins, warnings }: Origins): Loaded<S> {
  const values = Array.from(origins, ([name, origin]) => [name, readValue(settings[name]!, origin)])
  return { values: Object.fromEntries(values) as Values<S>, origins, warnings }
}

function findOrigin(
  name: string,
  setting: Setting,
  flags: LoadSources['flags'],
  environment: ReadonlyMap<string, string>,
  file: Awaited<ReturnType<typeof readConfigFile>>,
): Origin | undefined {
  const flag = flags.get(name)
  if (flag) return { source: 'flag', where: `--${name}`, raw: setting.kind.list ? flag.join(',') : flag[0] }
  const variable = environment.get(name)
  if (variable !== undefined) return { source: 'environment', where: environmentName(name), raw: variable }
  const entry = file.get(name)
  if (entry) return { source: 'file', where: `${entry.where} (${name})`, raw: entry.value }
  return setting.default === undefined ? undefined : { source: 'default', where: '', raw: setting.default }
}

function readValue(setting: Setting, origin: Origin): unknown {
  try {
    return setting.kind.read(origin.raw)
  } catch (error) {
    throw badValue(setting, origin, error as Error)
  }
}

function badValue(setting: Setting, origin: Origin, error: Error): Failure {
  const shown = setting.secret ? '' : ` ${JSON.stringify(origin.raw, masked)}`
  const message = `${origin.where}:${shown ? `${shown} is not valid,` : ''} ${error.message}`
  return origin.source === 'flag' ? usageError(message) : configurationError(message, error)
}

/** Masks credentials, in case they were given where none are allowed, and the query of a URL, which may have an API key. */
function masked(_: string, value: unknown): unknown {
  if (typeof value !== 'string') return value
  return value.replace(/^([a-z+.-]+:\/\/)?.*@/is, '$1***@').replace(/(:\/\/.*?[?#]).+/s, '$1***')
}
