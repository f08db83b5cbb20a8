import { usageError } from './failure.ts'
import { suggestion } from './suggest.ts'

/** A flag, as far as the command line and `--help` are concerned. */
export interface CommandFlag {
  readonly about: string
  /** Placeholder of its value; empty for a switch. */
  readonly placeholder: string
  /** May be given more than once. */
  readonly list?: boolean
  /** Takes every argument up to the next flag: `--host A B C`. */
  readonly variadic?: boolean
}

export type Flags = Readonly<Record<string, CommandFlag>>

export interface Arguments {
  /** Values by flag, in order. A switch has `true` or `false`. */
  readonly flags: ReadonlyMap<string, readonly string[]>
  readonly positionals: readonly string[]
}

/** Short flags of commands that have a log. */
export const SHORT: Readonly<Record<string, string>> = { '-q': '--log.level=warn', '-v': '--log.level=debug' }

/** Splits `args` into flags and positionals. An unknown flag, or a missing or surplus value, is a usage error. */
export function parseArguments(args: readonly string[], known: Flags): Arguments {
  const flags = new Map<string, string[]>()
  const positionals: string[] = []
  const rest = [...args]
  while (rest.length > 0) {
    const arg = rest.shift()!
    if (arg === '--') {
      positionals.push(...rest)
      break
    }
    const short = 'log.level' in known ? SHORT[arg] : undefined
    if (short !== undefined) {
      rest.unshift(short)
      continue
    }
    if (!arg.startsWith('--')) {
      if (arg.startsWith('-') && arg !== '-') throw usageError(`unknown flag ${arg}${hint(arg.slice(1), known)}`)
      positionals.push(arg)
      continue
    }
    const { name, values } = takeFlag(arg.slice(2), rest, known)
    const earlier = flags.get(name)
    if (earlier && !known[name]!.list) throw usageError(`--${name} is given twice`)
    flags.set(name, [...(earlier ?? []), ...values])
  }
  return { flags, positionals }
}

function takeFlag(text: string, rest: string[], known: Flags): { name: string; values: string[] } {
  const equals = text.indexOf('=')
  const name = equals < 0 ? text : text.slice(0, equals)
  const flag = Object.hasOwn(known, name) ? known[name] : undefined
  if (!flag) throw usageError(`unknown flag --${name}${hint(name, known)}`)
  const given = equals < 0 ? undefined : text.slice(equals + 1)
  if (flag.placeholder === '') return { name, values: [switchOf(name, given)] }
  if (given !== undefined) return { name, values: [given] }
  if (rest.length === 0 || rest[0]!.startsWith('--')) throw usageError(`--${name} needs a value: ${flag.placeholder}`)
  const values = [rest.shift()!]
  while (flag.variadic && rest.length > 0 && !rest[0]!.startsWith('-')) values.push(rest.shift()!)
  return { name, values }
}

function switchOf(name: string, given = 'true'): string {
  if (given === 'true' || given === '1') return 'true'
  if (given === 'false' || given === '0') return 'false'
  throw usageError(`--${name}: ${JSON.stringify(given)} is neither true nor false`)
}

function hint(name: string, known: Flags): string {
  return suggestion(name, Object.keys(known), '--')
}
