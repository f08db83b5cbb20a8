import type { Probe } from '../../protocol/base/probe.ts'
import type { Arguments } from '../args.ts'
import { checkComponent, checkReport } from '../check/component.ts'
import type { Io } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import type { ComponentName } from '../config/components.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { terminalJson } from '../plain-text.ts'
import { printable } from '../table.ts'
import { withTarget } from './client.ts'

/** `sallyport check COMPONENT` */
export async function check(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const given = component === 'client' ? withTarget(args) : args
  const probes = await checkComponent(component, () => loadFromCommandLine(component, given, io))
  if (hasSwitch(args, 'json')) io.out(`${terminalJson(checkReport(component, probes), 2)}\n`)
  else for (const probe of probes) io.out(textOf(probe))
  return probes.some(({ status }) => status === 'fail') ? EXIT.checkFailed : EXIT.ok
}

function textOf({ code, status, what, found, expected, hint }: Probe): string {
  const line = `${status.padEnd(4)}  ${code.padEnd(14)}  ${printable(what)}: ${printable(found)}\n`
  if (status === 'ok' || status === 'skip') return line
  const more = [`expected: ${expected}`, ...(hint === '' ? [] : [printable(hint)])]
  return line + more.map(text => `${' '.repeat(22)}${text}\n`).join('')
}
