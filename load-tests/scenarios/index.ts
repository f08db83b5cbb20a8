import { bulk } from './bulk.ts'
import type { Scenario } from './scenario.ts'
import { small } from './small.ts'
import { webhook } from './webhook.ts'

/** In the order of a run. */
export const SCENARIOS: readonly Scenario[] = [small, webhook, bulk]
