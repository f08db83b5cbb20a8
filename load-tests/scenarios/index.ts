import { mixed, slow } from './beside.ts'
import { bulk } from './bulk.ts'
import { events } from './events.ts'
import { idle } from './idle.ts'
import { rates } from './rates.ts'
import type { Scenario } from './scenario.ts'
import { small } from './small.ts'
import { webhook } from './webhook.ts'
import { webSocket } from './websocket.ts'

/** In the order of a run. */
export const SCENARIOS: readonly Scenario[] = [small, rates, webhook, bulk, mixed, slow, webSocket, events, idle]
