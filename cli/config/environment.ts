import { nearest } from '../../protocol/base/nearest.ts'
import { environmentName, type Settings } from './setting.ts'

/** Variables that Kubernetes adds to every container for a Service named `sallyport...` (service links). */
const SERVICE_LINK = /_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/
const SERVICE_URL = /^(tcp|udp|sctp):\/\//

/** Variables other than settings. */
const OTHER_NAMES = ['SALLYPORT_CONFIG']

interface EnvironmentValues {
  /** Text by the setting's name. */
  readonly values: ReadonlyMap<string, string>
  readonly warnings: readonly string[]
}

/**
 * Reads the `SALLYPORT_*` variables that are settings of this component. A variable that no component knows causes a warning.
 * Those that Kubernetes injects are ignored.
 */
export function readEnvironment(
  settings: Settings,
  environment: Readonly<Record<string, string | undefined>>,
  everyName: Iterable<string>,
): EnvironmentValues {
  const byVariable = new Map(Object.keys(settings).map(name => [environmentName(name), name]))
  const known = new Set([...OTHER_NAMES, ...[...everyName].map(environmentName)])
  const values = new Map<string, string>()
  const warnings: string[] = []
  for (const [variable, text] of Object.entries(environment)) {
    if (text === undefined || !variable.startsWith('SALLYPORT_') || isServiceLink(variable, text)) continue
    const name = byVariable.get(variable)
    if (name !== undefined) values.set(name, text)
    else if (!known.has(variable)) warnings.push(unknownVariable(variable, byVariable.keys()))
  }
  return { values, warnings }
}

function isServiceLink(variable: string, text: string): boolean {
  return SERVICE_LINK.test(variable) || (variable.endsWith('_PORT') && SERVICE_URL.test(text))
}

function unknownVariable(variable: string, candidates: Iterable<string>): string {
  const match = nearest(variable, candidates)
  return `unknown variable ${variable} is ignored${match ? `; did you mean ${match}?` : ''}`
}
