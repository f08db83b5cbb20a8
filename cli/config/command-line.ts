import type { Arguments } from '../args.ts'
import type { Io } from '../command.ts'
import { optionalFlag } from '../options.ts'
import { COMPONENTS, type ComponentName, everySettingName } from './components.ts'
import { type Loaded, loadConfig } from './load.ts'

/** The settings of a component from its command line, the environment and the file that they name. */
export function loadFromCommandLine<C extends ComponentName>(
  component: C,
  args: Arguments,
  io: Io,
): Promise<Loaded<(typeof COMPONENTS)[C]>> {
  return loadConfig(COMPONENTS[component], {
    flags: args.flags,
    environment: io.environment,
    configFile: optionalFlag(args, 'config'),
    everyName: everySettingName(),
  })
}
