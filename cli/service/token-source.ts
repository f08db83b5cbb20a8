import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { FilesWatch } from '../../protocol/base/watch-files.ts'
import type { ClientConfig } from '../config/client.ts'
import { configurationError, fileProblem } from '../failure.ts'
import { checkTokenCommand } from './files.ts'
import { runTokenCommand } from './token-command.ts'
import { watchText } from './watch.ts'

interface OpenTokenSource {
  /** For the tunnel: called at the start, and again when a third of the last token's lifetime is left. */
  source(): Promise<string>
  /** From now on, calls `onToken` for each new token in the file. */
  follow(onToken: (token: string) => void): void
  close(): void
}

/**
 * Opens the token's file or command. If the file does not exist yet, we wait for it, as for a Kubernetes Secret that a job will
 * fill. A file that may not be read, or that is missing with `--exit-on-refusal`, is a configuration error.
 */
export async function openTokenSource(config: ClientConfig, logger: Logger): Promise<OpenTokenSource> {
  const file = config['token.file']
  if (file === undefined) return commandSource(checkTokenCommand(config['token.command'])!)
  const text = await readFirst(file, config['exit-on-refusal'], logger)
  return fileSource(file, text, logger)
}

function commandSource(words: readonly string[]): OpenTokenSource {
  const closing = new AbortController()
  return {
    source: () => runTokenCommand(words, undefined, closing.signal),
    follow() {},
    close: () => closing.abort(),
  }
}

async function readFirst(file: string, mustExist: boolean, logger: Logger): Promise<string | undefined> {
  try {
    return String(await readPlain(file))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || mustExist) {
      throw configurationError(`--token.file ${file}: ${fileProblem(error)}`, error)
    }
    logger.warn({ file }, 'the token file does not exist yet; waiting for it')
    return undefined
  }
}

function fileSource(file: string, first: string | undefined, logger: Logger): OpenTokenSource {
  let watching: Pick<FilesWatch, 'close'> | undefined
  return {
    async source() {
      const text = await readPlain(file).catch(error => fail(`${file}: ${fileProblem(error)}`))
      const token = String(text).trim()
      return token === '' ? fail(`${file} is empty`) : token
    },
    follow(onToken) {
      const onText = (text: string) => {
        if (text.trim() !== '') onToken(text.trim())
      }
      const onGone = (error: unknown) =>
        logger.warn(
          { file, err: { message: fileProblem(error) } },
          'the token file cannot be read; the old token stays in force',
        )
      watching = watchText(file, first, onText, onGone)
    },
    close: () => watching?.close(),
  }
}

function fail(message: string): never {
  throw new Error(message)
}
