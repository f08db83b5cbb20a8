import { CHECKS, CONFIGS, DIAGS, SERVICES } from './catalog/components.ts'
import { CREDENTIALS } from './catalog/credentials.ts'
import { INBOX, INSPECT, LIFECYCLE, STATUS } from './catalog/operations.ts'
import { COMPLETIONS, ROUTE, TOOLS, WEBHOOK } from './catalog/tools.ts'
import type { Command } from './command.ts'

/** Every command, in the order of `sallyport --help`. */
export const COMMANDS: readonly Command[] = [
  ...SERVICES,
  ...CREDENTIALS,
  ROUTE,
  ...CONFIGS,
  ...CHECKS,
  ...DIAGS,
  ...LIFECYCLE,
  WEBHOOK,
  ...INBOX,
  ...INSPECT,
  ...STATUS,
  ...TOOLS,
  ...COMPLETIONS,
]
