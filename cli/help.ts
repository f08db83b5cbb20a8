import { type Flags, SHORT } from './args.ts'
import { flagsOf } from './catalog/flags.ts'
import type { Command } from './command.ts'
import { COMMANDS } from './commands.ts'

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
    '\n`sallyport COMMAND --help` describes a command; `sallyport --version` prints the version.',
    'Settings can be flags, environment variables (--auth.jwks.url is SALLYPORT_AUTH_JWKS_URL) or YAML (--config FILE).\n',
  ].join('\n')
}

/** Shows the three components of a `config` action in one line. */
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
    ...flagGroups(command).flatMap(([heading, rows]) => [`${heading}:`, columns(rows), '']),
  ].join('\n')
}

/** The headings of `--help`, in order, with the first words of the settings below each. */
const HEADINGS: readonly (readonly [heading: string, firstWords: string])[] = [
  ['Connection', 'server connect-to token ca ca-only tls audience connections proxy exit-on-refusal'],
  ['Callers', 'domain own-hosts public access trusted-proxies listen cors'],
  ['Tunnel clients', 'control'],
  ['Tokens', 'auth'],
  ['Routing', 'target routes preset allow'],
  ['Webhook inbox', 'inbox'],
  ['Replicas', 'directory peer replica replicas'],
  ['Requests that wait for a session', 'hold'],
  ['Limits', 'limits ping'],
  ['Stopping', 'grace drain-spread drain-delay reuse-address'],
  ['Operation', 'admin inspect health log tracing'],
]

type Rows = (readonly [left: string, right: string])[]

/** The flags of a component by heading. Other commands have few. */
function flagGroups(command: Command): (readonly [heading: string, rows: Rows])[] {
  const flags = flagsOf(command)
  if (command.component === undefined) return [['Flags', [...flagRows(flags), HELP]]]
  const groups = new Map<string, Rows>(HEADINGS.map(([heading]) => [heading, []]))
  const others: Rows = []
  for (const flag of Object.keys(flags)) {
    const word = flag.split('.')[0]!
    const heading = HEADINGS.find(([, words]) => words.split(' ').includes(word))?.[0]
    const rows = heading === undefined ? others : groups.get(heading)!
    rows.push(...flagRows({ [flag]: flags[flag]! }))
  }
  const short = 'log.level' in flags ? SHORT_ROWS : []
  groups.set('Others', [...others, ...short, HELP])
  return [...groups].filter(([, rows]) => rows.length > 0)
}

const SHORT_ROWS = [
  ['-q', `Logs only warnings and errors: ${SHORT['-q']}.`],
  ['-v', `Logs everything: ${SHORT['-v']}.`],
] as const
const HELP = ['--help', 'Shows this help.'] as const

function flagRows(flags: Flags): Rows {
  return Object.entries(flags).map(
    ([name, { placeholder, about }]) => [`--${name}${placeholder ? ` ${placeholder}` : ''}`, about] as const,
  )
}

function columns(rows: Readonly<Rows>): string {
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
