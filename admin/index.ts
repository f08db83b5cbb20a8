/** The admin and health listeners and the metrics of a component. */
export type { Action, Actions, Body } from './actions.ts'
export {
  type AdminListener,
  type AdminOptions,
  type AdminListenerSettings as ListenerOptions,
  listenAdmin,
  listenHealth,
} from './listener.ts'
export { createMetrics, type Metrics, type MetricsOptions, type Snapshot } from './metrics.ts'
export type { AdminSource } from './page.ts'
export {
  type FoundFile,
  findRuntimeFiles,
  type RuntimeFile,
  randomToken,
  removeRuntimeFile,
  runtimeDirectories,
  readAdminToken as tokenOf,
  writeRuntimeFile,
} from './runtime-file.ts'
