import type { Arguments } from './args.ts'
import type { Io } from './command.ts'
import { EXIT } from './failure.ts'
import { hasSwitch } from './options.ts'
import { terminalJson } from './plain-text.ts'

/** Prints the result of a command: as JSON with `--json`, otherwise as text. Returns the exit code, by default for success. */
export function printResult(
  args: Arguments,
  io: Io,
  value: unknown,
  text: () => string,
  code: number = EXIT.ok,
): number {
  if (hasSwitch(args, 'json')) printJson(io, value)
  else io.out(text())
  return code
}

export function printJson(io: Io, value: unknown): number {
  io.out(`${terminalJson(value, 2)}\n`)
  return EXIT.ok
}
