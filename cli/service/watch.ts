import { detached } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'

/**
 * Calls `onText` with the text of the file whenever it changes, and `onGone` once when it can no longer be read (see
 * {@link watchFiles}). The file need not exist yet.
 */
export function watchText(
  path: string,
  current: string | undefined,
  onText: (text: string) => void,
  onGone: (error: unknown) => void = () => {},
): Pick<FilesWatch, 'close'> {
  let known = current
  let isGone = false
  let closed = false

  async function reread(): Promise<void> {
    try {
      const text = String(await readPlain(path))
      if (closed) return
      isGone = false
      if (text === known) return
      known = text
      onText(text)
    } catch (error) {
      if (!closed && !isGone && known !== undefined) onGone(error)
      isGone = true
    }
  }

  const watching = watchFiles([path], noLogger, () => detached(noLogger, '', reread()))
  return {
    close() {
      closed = true
      watching.close()
    },
  }
}
