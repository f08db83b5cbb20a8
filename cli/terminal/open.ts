import { Terminal } from './terminal.ts'

interface TerminalOptions {
  readonly format: 'auto' | 'json' | 'text'
  readonly level: 'debug' | 'info' | 'warn' | 'error'
  readonly environment: Readonly<Record<string, string | undefined>>
  write(text: string): void
}

/** The terminal on stderr. Undefined if there is none, if another log format was chosen, or if it cannot move its cursor. */
export function openTerminal({ format, level, environment, write }: TerminalOptions): Terminal | undefined {
  const { stderr } = process
  if (format !== 'auto' || stderr.isTTY !== true || environment.TERM === 'dumb') return undefined
  return new Terminal({
    write,
    shows: level === 'debug' ? 'all' : level === 'info' ? 'most' : 'failures',
    // https://no-color.org
    colours: (environment.NO_COLOR ?? '') === '',
    get columns() {
      return stderr.columns || 80
    },
  })
}
