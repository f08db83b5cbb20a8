import type { Arguments, Flags } from './args.ts'
import type { ComponentName } from './config/components.ts'

/** Input and output of a command; tests pass their own. */
export interface Io {
  /** Writes data. */
  out(text: string): void
  /** Writes a line for people. It needs no line break. */
  note(text: string): void
  readonly environment: Readonly<Record<string, string | undefined>>
  readStdin(): Promise<string>
}

/** A subcommand, as `--help` and the dispatcher see it. Its code is loaded only when it runs. */
export interface Command {
  /** As typed: `certs init`. */
  readonly name: string
  readonly about: string
  /** A working example, shown first. */
  readonly example: string
  /** Names of the positional arguments, such as `FILE` or `[FILE]`. */
  readonly positionals?: readonly string[]
  readonly flags: Flags
  /** Component whose settings it also takes, as flags, variables and `--config`. */
  readonly component?: ComponentName
  /** Passes all arguments on without parsing them. */
  readonly raw?: boolean
  readonly load: () => Promise<Run>
}

/** Resolves to the exit code. */
export type Run = (args: Arguments, io: Io) => Promise<number>

/** The commands of one module, by the function that runs each. The module is loaded when one of them runs. */
export function commandsOf<Name extends string>(
  load: () => Promise<Readonly<Record<NoInfer<Name>, Run>>>,
  commands: Readonly<Record<Name, Omit<Command, 'load'>>>,
): Command[] {
  const entries = Object.entries(commands) as [Name, Omit<Command, 'load'>][]
  return entries.map(([name, command]) => ({ ...command, load: async () => (await load())[name] }))
}
