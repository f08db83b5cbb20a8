import { parseArguments } from './args.ts'
import { flagsOf } from './catalog/flags.ts'
import type { Command, Io } from './command.ts'
import { COMMANDS, findCommand, wordsAfter } from './commands.ts'
import { completionLines } from './completion.ts'
import { EXIT, Failure, usageError } from './failure.ts'
import { helpAll, helpCommand } from './help.ts'
import { plainLines } from './plain-text.ts'
import { suggestion } from './suggest.ts'

/** Runs one command line. Resolves to the exit code. Expected failures are reported on stderr. */
export async function run(args: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(args, io)
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    // Parts of it may come from others.
    io.note(`sallyport: ${plainLines(error.message)}`)
    return error.exitCode
  }
}

async function dispatch(args: readonly string[], io: Io): Promise<number> {
  const [first, second] = args
  if (first === undefined) return misused(io, helpAll())
  if (first === '--version' || first === '-v') return dispatch(['version'], io)
  if (first === 'help') return dispatch([...args.slice(1), '--help'], io)
  if (isHelp(first)) return print(io, helpAll())
  if (args.slice(0, 3).join(' ') === 'completion words --') return print(io, completionLines(args.slice(3)))
  if (isGroup(wordsBeforeHelp(args))) return print(io, helpAll(first))
  if (hasList(first) && (second === undefined || second.startsWith('-'))) {
    return dispatch([first, 'list', ...args.slice(1)], io)
  }
  if (isGroup(first) && second === undefined) return misused(io, helpAll(first))
  const found = findCommand(args)
  if (found === undefined) throw unknownCommand(args)
  const { command, rest } = found
  if (asksHelp(rest)) return print(io, helpCommand(command))
  const parsed = command.raw ? { flags: new Map(), positionals: rest } : parseFor(command, rest)
  return (await command.load())(parsed, io)
}

function isHelp(arg: string): boolean {
  return arg === '--help' || arg === '-h'
}

function asksHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  return args.slice(0, end < 0 ? undefined : end).some(isHelp)
}

/** The words before `--help`, such as `config validate`; empty without `--help`. */
function wordsBeforeHelp(args: readonly string[]): string {
  return args.slice(0, Math.max(0, args.findIndex(isHelp))).join(' ')
}

/** Whether `word` is a group. A word that is also a command itself, such as `diag`, is not. */
function isGroup(word: string): boolean {
  return COMMANDS.some(({ name }) => name.startsWith(`${word} `)) && !COMMANDS.some(({ name }) => name === word)
}

/** Whether the group has a `list` command, which is then its default: `sallyport sessions`. */
function hasList(group: string): boolean {
  return COMMANDS.some(({ name }) => name === `${group} list`)
}

/** Checks word by word, so that the error names the first wrong one. */
function unknownCommand(args: readonly string[]): Failure {
  const known: string[] = []
  for (const word of args) {
    const next = wordsAfter(known)
    if (word.startsWith('-')) break
    known.push(word)
    if (!next.has(word)) return usageError(`unknown command ${known.join(' ')}${suggestion(word, next.keys())}`)
  }
  return usageError([...known, `needs one of: ${[...wordsAfter(known).keys()].join(', ')}`].join(' '))
}

function parseFor(command: Command, rest: readonly string[]): ReturnType<typeof parseArguments> {
  const names = command.positionals ?? []
  try {
    const parsed = parseArguments(rest, flagsOf(command))
    const least = names.filter(name => !name.startsWith('[')).length
    if (parsed.positionals.length < least) throw usageError(`${names[parsed.positionals.length]} is missing`)
    if (parsed.positionals.length > names.length) {
      throw usageError(`unexpected argument ${JSON.stringify(parsed.positionals[names.length])}`)
    }
    return parsed
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    throw new Failure(error.exitCode, `${command.name}: ${error.message} (sallyport ${command.name} --help)`)
  }
}

function misused(io: Io, text: string): number {
  io.note(text)
  return EXIT.usage
}

function print(io: Io, text: string): number {
  io.out(text)
  return EXIT.ok
}
