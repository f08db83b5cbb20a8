/**
 * Shell completion. The shells ask the program itself (`sallyport completion words`), so that they offer exactly what it
 * accepts, as cobra and clap do.
 */
import type { Flags } from './args.ts'
import { flagsOf } from './catalog/flags.ts'
import type { Command } from './command.ts'
import { COMMANDS, findCommand, wordsAfter } from './commands.ts'

/** One word that may follow, and its description. */
interface Continuation {
  readonly word: string
  readonly about: string
}

/** `'files'` leaves the completion to the shell, which completes paths better. */
type Continuations = readonly Continuation[] | 'files'

/** What `sallyport completion words -- WORD...` prints: one candidate per line, with a tab and its description; `:files` asks for paths. */
export function completionLines(words: readonly string[]): string {
  const found = complete(words)
  return found === 'files' ? ':files\n' : found.map(({ word, about }) => `${word}\t${about}\n`).join('')
}

/** `words` are those after `sallyport`. The last one is under the cursor, and may be empty. */
export function complete(words: readonly string[]): Continuations {
  const before = words.slice(0, -1)
  const start = words.at(-1) ?? ''
  const all = candidates(before, start)
  return all === 'files' ? all : all.filter(({ word }) => word.startsWith(start))
}

function candidates(before: readonly string[], start: string): Continuations {
  const found = findCommand(hasDefault(before, start) ? [before[0]!, 'list', ...before.slice(1)] : before)
  if (found === undefined) return nextWords(before)
  const { command, rest } = found
  const flags = flagsOf(command)
  const value = wanted(rest.at(-1), flags)
  if (value !== undefined) return values(value)
  if (!start.startsWith('-')) return positional(command, rest.length === 0 ? nextWords(before) : [])
  return Object.entries(flags)
    .filter(([name, { list }]) => list === true || !rest.includes(`--${name}`))
    .map(([name, { about }]) => ({ word: `--${name}`, about }))
}

/** A group may be followed by the flags of its `list` command: `sallyport sessions --runtime demo`. */
function hasDefault([group, next]: readonly string[], start: string): boolean {
  return (next ?? start).startsWith('-') && COMMANDS.some(({ name }) => name === `${group} list`)
}

function nextWords(before: readonly string[]): readonly Continuation[] {
  return [...wordsAfter(before)].map(([word, about]) => ({ word, about }))
}

/** Placeholder of the flag `word`. Undefined if it is not a flag, or is a switch. */
function wanted(word: string | undefined, flags: Flags): string | undefined {
  const name = word?.startsWith('--') ? word.slice(2) : ''
  return Object.hasOwn(flags, name) ? flags[name]!.placeholder || undefined : undefined
}

function values(placeholder: string): Continuations {
  if (/^(FILE|FOLDER|DIR|PATH)\b/.test(placeholder)) return 'files'
  const words = placeholder.split('|').filter(word => /^[a-z\d][\w.-]*$/.test(word))
  return words.map(word => ({ word, about: '' }))
}

/** `longer`: words that make a longer command. */
function positional({ positionals = [] }: Command, longer: readonly Continuation[]): Continuations {
  return positionals.some(name => /FILE|DIR/.test(name)) ? 'files' : longer
}
