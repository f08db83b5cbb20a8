import { type Flags, SHORT } from './args.ts'
import type { Command } from './command.ts'
import { COMMANDS, flagsOf } from './commands.ts'

const WIDTH = 100

/** `sallyport --help`, or that of a group such as `certs`. */
export function helpAll(group?: string): string {
  const commands = group ? COMMANDS.filter(({ name }) => name.startsWith(`${group} `)) : COMMANDS
  const rows = shorten(commands).map(({ name, about }) => [name, about] as const)
  const example = group ? commands[0]!.example : 'sallyport demo --check'
  return [
    `Example:\n  ${example}\n`,
    `Usage: sallyport ${group ? `${group} ` : ''}COMMAND [FLAGS]\n`,
    'Commands:',
    columns(rows),
    '\n`sallyport COMMAND --help` says more; `sallyport --version` is the version.',
    'Settings are flags, variables (--auth.jwks.url is SALLYPORT_AUTH_JWKS_URL) and YAML (--config FILE).\n',
  ].join('\n')
}

/** The three components of a `config` action are one line. */
function shorten(commands: readonly Command[]): { name: string; about: string }[] {
  return commands
    .filter(({ name }) => !/^config \w+ (client|router)$/.test(name))
    .map(({ name, about }) => ({ name: name.replace(/^(config \w+) server$/, '$1 server|client|router'), about }))
}

/** `sallyport COMMAND --help`. */
export function helpCommand(command: Command): string {
  const positionals = (command.positionals ?? []).map(name => ` ${name}`).join('')
  return [
    `Example:\n  ${command.example}\n`,
    `${command.about}\n`,
    `Usage: sallyport ${command.name}${positionals} [FLAGS]\n`,
    'Flags:',
    columns(flagRows(flagsOf(command))),
    '',
  ].join('\n')
}

const SHORT_ROWS = [
  ['-q', `Says only what goes wrong: ${SHORT['-q']}.`],
  ['-v', `Says everything: ${SHORT['-v']}.`],
] as const

function flagRows(flags: Flags): (readonly [string, string])[] {
  const rows = Object.entries(flags).map(
    ([name, { placeholder, about }]) => [`--${name}${placeholder ? ` ${placeholder}` : ''}`, about] as const,
  )
  const short = 'log.level' in flags ? SHORT_ROWS : []
  return [...rows, ...short, ['--help', 'Shows this.']]
}

function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.min(36, Math.max(...rows.map(([left]) => left.length)))
  return rows
    .map(([left, right]) => {
      const lines = wrap(right, WIDTH - width - 4)
      const first = left.length > width ? `  ${left}\n  ${' '.repeat(width)}` : `  ${left.padEnd(width)}`
      return `${first}  ${lines.join(`\n${' '.repeat(width + 4)}`)}`
    })
    .join('\n')
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + word.length >= width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
