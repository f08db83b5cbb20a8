import type { Probe } from '../../protocol/base/probe.ts'
import type { Arguments } from '../args.ts'
import type { Io } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import { COMPONENTS, type ComponentName } from '../config/components.ts'
import { jsonSchema } from '../config/json-schema.ts'
import type { Loaded } from '../config/load.ts'
import { maskedValue } from '../config/masked.ts'
import type { Settings } from '../config/setting.ts'
import { configurationError, EXIT } from '../failure.ts'
import { plainText } from '../plain-text.ts'
import { printJson } from '../print.ts'

type ConfigOf<C extends ComponentName> = Loaded<(typeof COMPONENTS)[C]>['values']

/** `sallyport config validate COMPONENT`: everything that `COMPONENT` itself would refuse before it listens. */
export async function validate(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const { refuseClient, refuseRouter, refuseServer } = await import('../check/refusals.ts')
  const offline = await import('../check/offline.ts')
  const look = async <C extends ComponentName>(
    name: C,
    refuse: (values: ConfigOf<C>, environment: Io['environment'], places: Loaded<Settings>['origins']) => Promise<void>,
    probe: (values: ConfigOf<C>) => Promise<Probe[]>,
  ) => {
    const { values, origins, warnings } = await loadFromCommandLine(name, args, io)
    warn(warnings, io)
    await refuse(values, io.environment, origins)
    return await probe(values)
  }
  const looks = {
    server: () => look('server', refuseServer, offline.serverFiles),
    client: () => look('client', refuseClient, offline.filesWithRoutes),
    router: () => look('router', refuseRouter, offline.filesWithRoutes),
  }
  const probes = await looks[component]()
  for (const { status, what, found, expected, hint } of probes) {
    const text = `${what}: ${found}; expected: ${expected}. ${hint}`.trimEnd()
    if (status === 'fail') throw configurationError(text)
    if (status !== 'ok') io.note(`sallyport: ${plainText(text)}`)
  }
  io.out(`the configuration of the ${component} is valid\n`)
  return EXIT.ok
}

/** `sallyport config print COMPONENT`: each value with its source. Rules between settings are left to `validate`. */
export async function print(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const loaded: Loaded<Settings> = await loadFromCommandLine(component, args, io)
  warn(loaded.warnings, io)
  const rows = Object.entries(COMPONENTS[component] as Settings).map(([name, setting]) => {
    const origin = loaded.origins.get(name)
    if (!origin) return [name, '-', 'not set'] as const
    return [
      name,
      plainText(maskedValue(setting, origin.raw)),
      plainText([origin.source, origin.where].filter(part => part !== '').join(' ')),
    ] as const
  })
  const widths = [0, 1].map(column => Math.max(...rows.map(row => Math.min(row[column]!.length, 48))))
  for (const [name, value, source] of rows) {
    io.out(`${name.padEnd(widths[0]!)}  ${value.padEnd(widths[1]!)}  ${source}\n`)
  }
  return EXIT.ok
}

export async function schema(component: ComponentName, _: Arguments, io: Io): Promise<number> {
  return printJson(io, jsonSchema(component, COMPONENTS[component]))
}

function warn(warnings: readonly string[], io: Io): void {
  for (const warning of warnings) io.note(`sallyport: ${plainText(warning)}`)
}
