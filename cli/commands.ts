import { CHECK_COMMANDS, CONFIGS, DIAGS, SERVICES } from './catalog/components.ts'
import { CREDENTIALS } from './catalog/credentials.ts'
import { INBOX_COMMANDS, INSPECT, LIFECYCLE, STATUS } from './catalog/operations.ts'
import { COMPLETIONS, ROUTE, TOOLS, WEBHOOK } from './catalog/tools.ts'
import type { Command } from './command.ts'

/** Every command, in the order of `sallyport --help`. */
export const COMMANDS: readonly Command[] = [
  ...SERVICES,
  ...CREDENTIALS,
  ROUTE,
  ...CONFIGS,
  ...CHECK_COMMANDS,
  ...DIAGS,
  ...LIFECYCLE,
  WEBHOOK,
  ...INBOX_COMMANDS,
  ...INSPECT,
  ...STATUS,
  ...TOOLS,
  ...COMPLETIONS,
]

/** The command that these words begin with. It takes one to three of them: `server`, `certs init`, `config print server`. */
export function findCommand(words: readonly string[]): { command: Command; rest: readonly string[] } | undefined {
  for (const length of [3, 2, 1]) {
    const name = words.slice(0, length).join(' ')
    const command = COMMANDS.find(candidate => candidate.name === name)
    if (command) return { command, rest: words.slice(length) }
  }
  return undefined
}

/** The words that may follow, with what the command does if the word completes its name. */
export function wordsAfter(before: readonly string[]): ReadonlyMap<string, string> {
  const known = before.map(word => `${word} `).join('')
  const found = new Map<string, string>()
  for (const { name, about } of COMMANDS) {
    if (!name.startsWith(known)) continue
    const word = name.slice(known.length).split(' ')[0]!
    if (!found.has(word)) found.set(word, name === known + word ? about : '')
  }
  return found
}
