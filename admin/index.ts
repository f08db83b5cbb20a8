/** The admin and health listeners and the metrics of a component. */
export type { Action, Actions, Body } from './actions.ts'
export {
  type AdminListener,
  type AdminListenerSettings as ListenerOptions,
  type AdminOptions,
  listenAdmin,
  listenHealth,
} from './listener.ts'
export { createMetrics, type Metrics, type MetricsOptions } from './metrics.ts'
export type { AdminSource } from './page.ts'
export {
  type FoundFile,
  findRuntimeFiles,
  type RuntimeFile,
  randomToken,
  readAdminToken as tokenOf,
  removeRuntimeFile,
  runtimeDirectories,
  writeRuntimeFile,
} from './runtime-file.ts'
export type { Snapshot } from './snapshot.ts'
export { Traffic } from './traffic.ts'
