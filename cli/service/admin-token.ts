import { isSendableToken } from '../../admin/access.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { configurationError, fileProblem } from '../failure.ts'

const MIN_TOKEN_LENGTH = 16

/** Reads the token of an admin listener. Refuses one that is short, since it could be guessed, and one that nobody could send. */
export async function readAdminTokenFile(path: string): Promise<string> {
  let token: string
  try {
    token = String(await readPlain(path)).trim()
  } catch (error) {
    throw configurationError(`cannot read the admin token ${path}: ${fileProblem(error)}`, error)
  }
  if (token.length < MIN_TOKEN_LENGTH)
    throw configurationError(`the admin token in ${path} is shorter than ${MIN_TOKEN_LENGTH} characters`)
  if (isSendableToken(token)) return token
  throw configurationError(
    `the admin token in ${path} has spaces or control characters, is not ASCII, or is longer than 8192 characters`,
  )
}
