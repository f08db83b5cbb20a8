import { type Buffer, isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { messageOf } from '../protocol/base/errors.ts'
import type { Arguments } from './args.ts'
import { grace, type Kind } from './config/kinds.ts'
import { configurationError, Failure, fileProblem, usageError } from './failure.ts'

/** The one value of a flag, if it was given. */
export function optionalFlag(args: Arguments, name: string): string | undefined {
  return args.flags.get(name)?.[0]
}

/** The one value of a flag that must be given. */
export function requiredFlag(args: Arguments, name: string): string {
  const value = optionalFlag(args, name)
  if (value === undefined) throw usageError(`--${name} is missing`)
  return value
}

export function hasSwitch(args: Arguments, name: string): boolean {
  return optionalFlag(args, name) === 'true'
}

/** A whole number from 1, if the flag was given. */
export function optionalCount(args: Arguments, name: string): number | undefined {
  const text = optionalFlag(args, name)
  if (text === undefined) return undefined
  if (!/^[1-9]\d{0,5}$/.test(text)) throw usageError(`--${name}: ${JSON.stringify(text)} is not a whole number from 1`)
  return Number(text)
}

/** The name, in lower case, and the value of a `--header`. */
export function parseHeader(text: string): [string, string] {
  const colon = text.indexOf(':')
  if (colon < 1) throw usageError(`--header ${JSON.stringify(text)}: expected "NAME: VALUE"`)
  return [text.slice(0, colon).trim().toLowerCase(), text.slice(colon + 1).trim()]
}

/** Whether `id` begins with `start`. An empty `start`, as from an unset shell variable, matches nothing. */
export function beginsId(start: string, id: unknown): boolean {
  return start !== '' && typeof id === 'string' && id.startsWith(start)
}

/** Milliseconds of `--grace`, or another flag like it, if it was given. */
export function optionalGrace(args: Arguments, name = 'grace'): number | undefined {
  const text = optionalFlag(args, name)
  return text === undefined ? undefined : readAs(grace, name, text)
}

/** Reads the value of a flag as one of this kind. */
export function readAs<T>(kind: Kind<T>, flag: string, text: string): T {
  try {
    return kind.read(text)
  } catch (error) {
    throw usageError(`--${flag} ${text}: ${(error as Error).message}`)
  }
}

/** Reads a text file that the user named. `what` describes it in the error message. */
export function readInput(path: string, what: string): string {
  return readInputBytes(path, what).toString('utf8')
}

/** Like {@link readInput}, but fails for text that is not UTF-8, whose bytes would change. */
export function readUtf8(path: string, what: string): string {
  const bytes = readInputBytes(path, what)
  if (!isUtf8(bytes)) throw usageError(`${what} ${path} is not UTF-8 text`)
  return bytes.toString('utf8')
}

export function readInputBytes(path: string, what: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw configurationError(`cannot read ${what} ${path}: ${fileProblem(error)}`, error)
  }
}

/** Reads a URL to send requests to. Credentials belong in a header field, since anyone can read a command line. */
export function readUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw usageError(`${text}: expected an http(s) URL`)
  if (url.username !== '' || url.password !== '') throw usageError('no password in a URL: use --header')
  return url
}

/** Turns an error of the library about a value into a usage error, or with `what` into an error about that input. */
export async function checked<T>(work: () => T | Promise<T>, what?: string): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Failure) throw error
    const message = messageOf(error)
    throw what === undefined ? usageError(message) : configurationError(`${what}: ${message}`, error)
  }
}
