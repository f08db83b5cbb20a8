import { clientSettings } from './client.ts'
import { routerSettings } from './router.ts'
import { serverSettings } from './server.ts'
import type { Settings } from './setting.ts'

/** The components that have a configuration. */
export const COMPONENTS = { server: serverSettings, client: clientSettings, router: routerSettings } as const

export type ComponentName = keyof typeof COMPONENTS

/** Every setting's name, of all components. */
export function everySettingName(): Set<string> {
  return new Set(Object.values(COMPONENTS).flatMap((settings: Settings) => Object.keys(settings)))
}
