import { lstatSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import type { Arguments } from '../args.ts'
import type { Io } from '../command.ts'
import { optionalFlag } from '../options.ts'
import { COMPONENTS, type ComponentName, everySettingName } from './components.ts'
import { findOrigins, type Loaded, type Origins, readValues } from './load.ts'

/** The settings of a component from its command line, the environment and the file that they name. */
export async function loadFromCommandLine<C extends ComponentName>(
  component: C,
  args: Arguments,
  io: Io,
): Promise<Loaded<(typeof COMPONENTS)[C]>> {
  return readValues(COMPONENTS[component], await originsFromCommandLine(component, args, io))
}

/** The origins of the settings, whether or not their values are valid. */
export function originsFromCommandLine(component: ComponentName, args: Arguments, io: Io): Promise<Origins> {
  return findOrigins(COMPONENTS[component], {
    flags: args.flags,
    environment: io.environment,
    configFile: optionalFlag(args, 'config') ?? io.environment.SALLYPORT_CONFIG ?? usersFile(component, io.environment),
    everyName: everySettingName(),
  })
}

/** With `~/.config/sallyport/client.yaml`, a developer starts a client with nothing but a port. Services name their files. */
function usersFile(component: ComponentName, { XDG_CONFIG_HOME: folder, HOME, USERPROFILE }: Io['environment']) {
  const home = HOME || USERPROFILE
  const base = folder !== undefined && isAbsolute(folder) ? folder : home && join(home, '.config')
  if (component !== 'client' || !base) return undefined
  const file = join(base, 'sallyport', 'client.yaml')
  return exists(file) ? file : undefined
}

/** What cannot be read is no reason to go on without it: it may have `allow.callers`. */
function exists(file: string): boolean {
  try {
    lstatSync(file)
    return true
  } catch (error) {
    return !['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')
  }
}
