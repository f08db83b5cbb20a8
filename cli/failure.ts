import { messageOf } from '../protocol/base/errors.ts'
import { maskSecrets } from '../protocol/base/held-text.ts'

/** Exit codes of the command. */
export const EXIT = { ok: 0, runtime: 1, usage: 2, configuration: 3, refused: 4, checkFailed: 5 } as const

/** Ends the command with one line on stderr. The line must not quote tokens or private keys. No other error is thrown on purpose. */
export class Failure extends Error {
  override readonly name = 'Failure'
  readonly exitCode: number

  constructor(exitCode: number, message: string, options?: { cause?: unknown }) {
    super(maskSecrets(message), options)
    this.exitCode = exitCode
  }
}

/** The command line is wrong. */
export function usageError(message: string): Failure {
  return new Failure(EXIT.usage, message)
}

/** A value, a file or the environment is wrong. */
export function configurationError(message: string, cause?: unknown): Failure {
  return new Failure(EXIT.configuration, message, { cause })
}

/** Turns a TypeError of the library, which names the bad option, into a configuration error. Leaves other errors alone. */
export function ofMisuse(error: unknown): unknown {
  return error instanceof TypeError ? configurationError(error.message, error) : error
}

/** Explains why a file cannot be used: `no such file`, `permission denied`. */
export function fileProblem(error: unknown): string {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
      return 'no such file'
    case 'EACCES':
    case 'EPERM':
      return 'permission denied'
    case 'EISDIR':
      return 'it is a directory'
    case 'ENOSPC':
    case 'EDQUOT':
      return 'no space is left on the disk'
    case 'ENOTDIR':
      return 'a part of its path is not a directory'
    case 'ENAMETOOLONG':
      return 'it is too long for a path'
    default:
      return messageOf(error)
  }
}
