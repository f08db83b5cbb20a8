/** What a component reports about itself for `sallyport diag`: JSON, without the secrets that it knows. */
import { setTimeout as pause } from 'node:timers/promises'
import { messageOf } from '../../protocol/base/errors.ts'
import { checkComponent, checkReport } from '../check/component.ts'
import { COMPONENTS, type ComponentName } from '../config/components.ts'
import type { Loaded } from '../config/load.ts'
import { maskedValue } from '../config/masked.ts'
import type { Settings } from '../config/setting.ts'
import { withoutSecrets } from './clean.ts'
import { cpuProfile, MAX_PROFILE_S } from './cpu-profile.ts'
import { processReport } from './process-report.ts'
import { secretsOf } from './secrets.ts'
import { versions } from './versions.ts'

/** Time for the checks, which also have deadlines of their own. */
const CHECK_MS = 45_000

export interface Diagnosis {
  readonly component: ComponentName
  readonly versions: object
  readonly configuration: object
  readonly check: object
  readonly limits: object
  readonly report: object
  readonly profile?: object | undefined
}

export type LoadedSettings = Pick<Loaded<Settings>, 'origins' | 'warnings'> & { readonly values: unknown }
type Environment = Readonly<Record<string, string | undefined>>

/** The diagnosis of this process. `profileS`: length of the CPU profile, in seconds. */
export async function diagnosisOf(
  component: ComponentName,
  loaded: LoadedSettings,
  environment: Environment,
  { profileS = 0, ...more }: { readonly profileS?: number } & Readonly<Record<string, unknown>> = {},
): Promise<Diagnosis> {
  const [secrets, check, profile] = await Promise.all([
    secretsOf(COMPONENTS[component], loaded, environment),
    Promise.race([
      checkOf(component, loaded, environment),
      pause(CHECK_MS, { problem: 'it took too long' }, { ref: false }),
    ]),
    profileS > 0 ? cpuProfile(Math.min(profileS, MAX_PROFILE_S)).catch(failed) : undefined,
  ])
  const facts = { component, versions: versions(), configuration: configurationOf(component, loaded), check, ...more }
  return { ...withoutSecrets(facts, secrets), ...processReport(), profile }
}

/** Each setting with its current value and origin. */
function configurationOf(component: ComponentName, { origins }: LoadedSettings): object {
  const settings: Settings = COMPONENTS[component]
  const rows = [...origins].map(([name, { source, where, raw }]) => {
    return [name, { value: maskedValue(settings[name]!, raw), from: where === '' ? source : `${source} ${where}` }]
  })
  return Object.fromEntries(rows)
}

async function checkOf(component: ComponentName, loaded: LoadedSettings, environment: Environment): Promise<object> {
  try {
    return checkReport(component, await checkComponent(component, async () => loaded, { environment }))
  } catch (error) {
    return failed(error)
  }
}

function failed(error: unknown): { problem: string } {
  return { problem: messageOf(error) }
}
