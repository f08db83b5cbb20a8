import { loadConfig } from '../config/load.ts'
import { checkCallers } from '../config/rules.ts'
import { type AccessConfig, type ServerConfig, serverSettings } from '../config/server.ts'
import { configurationError } from '../failure.ts'

const NAMES = Object.keys(serverSettings).filter(name => name.startsWith('access.') && name !== 'access.files')
const SETTINGS = Object.fromEntries(
  NAMES.map(name => [name, serverSettings[name as keyof typeof serverSettings]]),
) as Pick<typeof serverSettings, keyof AccessConfig>

/** All sets of access rules: the server's own, and those of its `access.files`. */
export async function readAccess(config: ServerConfig): Promise<AccessConfig[]> {
  const read = (config['access.files'] ?? []).map(file => readAccessFile(file, config))
  return [config, ...(await Promise.all(read))]
}

async function readAccessFile(configFile: string, server: ServerConfig): Promise<AccessConfig> {
  const { values } = await loadConfig(SETTINGS, { flags: new Map(), environment: {}, configFile, everyName: NAMES })
  try {
    checkCallers(values, server)
    if (!values['access.runtimes']?.length) throw configurationError('access.runtimes is missing or empty')
  } catch (error) {
    throw configurationError(`${configFile}: ${(error as Error).message}`, error)
  }
  return values
}
