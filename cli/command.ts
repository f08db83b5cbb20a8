import type { Arguments, Flags } from './args.ts'
import type { ComponentName } from './config/components.ts'

/** Input and output of a command; tests pass their own. */
export interface Io {
  /** For data. */
  out(text: string): void
  /** For everything that people read. */
  note(text: string): void
  readonly environment: Readonly<Record<string, string | undefined>>
  readStdin(): Promise<string>
}

/** A subcommand as `--help` and the dispatcher see it; its code is loaded only when it runs. */
export interface Command {
  /** As typed: `certs init`. */
  readonly name: string
  readonly about: string
  /** A line that works, shown first. */
  readonly example: string
  /** Names of the positional arguments, such as `FILE` or `[FILE]`. */
  readonly positionals?: readonly string[]
  readonly flags: Flags
  /** Whose settings it takes besides, as flags, variables and `--config`. */
  readonly component?: ComponentName
  /** Hands all arguments on unread. */
  readonly raw?: boolean
  readonly load: () => Promise<Run>
}

/** Resolves to the exit code. */
export type Run = (args: Arguments, io: Io) => Promise<number>
