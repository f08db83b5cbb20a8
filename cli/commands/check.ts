import type { Probe } from '../../protocol/base/probe.ts'
import { findServer } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import { checkComponent, checkReport } from '../check/component.ts'
import { probeStop } from '../check/stop.ts'
import type { Io, Run } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import type { ComponentName } from '../config/components.ts'
import type { ServerConfig } from '../config/server.ts'
import { EXIT, usageError } from '../failure.ts'
import { hasSwitch, optionalFlag, optionalGrace, readInput } from '../options.ts'
import { printResult } from '../print.ts'
import { printable } from '../table.ts'
import { withTarget } from './client.ts'

export async function check(component: ComponentName, args: Arguments, io: Io): Promise<number> {
  const given = component === 'client' ? withTarget(args) : args
  const deep = hasSwitch(args, 'deep')
  const ca = optionalFlag(args, 'outside.ca')
  const isOutside = hasSwitch(args, 'outside')
  const alone = ca !== undefined ? '--outside.ca' : component === 'server' && deep ? '--deep' : undefined
  if (!isOutside && alone !== undefined) throw usageError(`${alone} needs --outside`)
  const stopMs = optionalGrace(args, 'termination-grace')
  const more = async (config: ServerConfig) => {
    const stop = stopMs === undefined ? [] : [probeStop(config, stopMs)]
    if (!isOutside) return stop
    const { probeOutside } = await import('../check/outside.ts')
    const trust = ca && readInput(ca, 'the authorities of the public name')
    return [...stop, ...(await probeOutside(config, { ca: trust, deep }))]
  }
  const load = () => loadFromCommandLine(component, given, io)
  const probes = await checkComponent(component, load, { deep, more, environment: io.environment })
  return report(component, probes, args, io)
}

/** `sallyport check --via RUNTIME`. */
export const checkVia: Run = async (args, io) => {
  const runtime = optionalFlag(args, 'via')
  if (runtime === undefined) throw usageError('say what to check: client, server, router, or --via RUNTIME')
  const { probeVia } = await import('../check/via.ts')
  return report('client', await probeVia(findServer(args, io), runtime), args, io)
}

function report(component: ComponentName, probes: readonly Probe[], args: Arguments, io: Io): number {
  printResult(args, io, checkReport(component, probes), () => HEADS + probes.map(textOf).join(''))
  return probes.some(({ status }) => status === 'fail') ? EXIT.checkFailed : EXIT.ok
}

const HEADS = row('STATUS', 'CODE', 'WHAT: FOUND')

function row(status: string, code: string, text: string): string {
  return `${status.padEnd(6)}  ${code.padEnd(16)}  ${text}\n`
}

function textOf({ code, status, what, found, expected, hint }: Probe): string {
  const line = row(status, code, `${printable(what)}: ${printable(found.replaceAll('\n', '; '))}`)
  if (status === 'ok' || status === 'skip') return line
  const more = [`expected: ${expected}`, ...(hint === '' ? [] : [printable(hint)])]
  return line + more.map(text => row('', '', text)).join('')
}
