import { mixed, slow } from './beside.ts'
import { bulk } from './bulk.ts'
import { events } from './events.ts'
import { idle } from './idle.ts'
import { inbox } from './inbox.ts'
import { mux } from './mux.ts'
import { rates } from './rates.ts'
import type { Scenario } from './scenario.ts'
import { small } from './small.ts'
import { soak } from './soak.ts'
import { storm } from './storm.ts'
import { wan } from './wan.ts'
import { webhook } from './webhook.ts'
import { webSocket } from './websocket.ts'

/** In the order of a run. Scenarios with targets come first, in case the time runs out. */
export const SCENARIOS: readonly Scenario[] = [
  small,
  bulk,
  wan,
  mixed,
  idle,
  storm,
  webhook,
  inbox,
  webSocket,
  events,
  rates,
  slow,
  mux,
  soak,
]
