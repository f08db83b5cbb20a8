/** A `sallyport` command as a process of a setup. */
import { fileURLToPath } from 'node:url'
import { type Started, start } from '../lib/processes.ts'

const BIN = fileURLToPath(new URL('../../bin/sallyport.js', import.meta.url))

export interface SallyportProcess extends Started {
  /** HOST:PORT of its listener with that name. */
  address(listener: string): string
}

export interface CommandOptions {
  /** Log lines to wait for: the names of listeners, or messages. */
  readonly until: readonly string[]
  readonly profileTo?: string | undefined
  /** Modules to preload. */
  readonly preload?: readonly string[]
}

/** Starts `sallyport ARGS...` and waits until it has logged what it should. */
export async function command(
  args: readonly string[],
  { until, profileTo, preload }: CommandOptions,
): Promise<SallyportProcess> {
  const name = args[0]!
  const addresses = new Map<string, string>()
  const waiting = new Set(until)
  const flags = [...(preload ?? []).map(file => `--import=${file}`), ...profileFlags(name, profileTo)]
  const started = await start({
    name,
    command: process.execPath,
    args: [...flags, BIN, ...args, '--log.format', 'json', '--admin.listen', 'off'],
    ready: line => {
      if (!line.startsWith('{')) return false
      const entry = JSON.parse(line) as { msg?: string; name?: string; address?: string }
      if (entry.msg === 'listening' && entry.name && entry.address) addresses.set(entry.name, entry.address)
      waiting.delete(entry.msg === 'listening' ? entry.name! : (entry.msg ?? ''))
      return waiting.size === 0
    },
  })
  return {
    ...started,
    address(listener) {
      const found = addresses.get(listener)
      if (found === undefined) throw new Error(`${name} does not listen as ${listener}`)
      return found
    },
  }
}

function profileFlags(name: string, folder: string | undefined): string[] {
  return folder
    ? ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-name=${name}-${process.pid}-${Date.now()}.cpuprofile`]
    : []
}

export const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(':') + 1))
