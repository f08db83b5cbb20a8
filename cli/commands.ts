import { CHECK_COMMANDS, CONFIGS, DIAGS, SERVICES } from './catalog/components.ts'
import { CREDENTIALS } from './catalog/credentials.ts'
import { INBOX_COMMANDS, INSPECT, LIFECYCLE, STATUS } from './catalog/operations.ts'
import { COMPLETIONS, ROUTE, TOOLS, WEBHOOK } from './catalog/tools.ts'
import type { Command } from './command.ts'

/** Every command, in the order of `sallyport --help`. */
export const COMMANDS: readonly Command[] = [
  ...SERVICES,
  ...CREDENTIALS,
  ROUTE,
  ...CONFIGS,
  ...CHECK_COMMANDS,
  ...DIAGS,
  ...LIFECYCLE,
  WEBHOOK,
  ...INBOX_COMMANDS,
  ...INSPECT,
  ...STATUS,
  ...TOOLS,
  ...COMPLETIONS,
]
