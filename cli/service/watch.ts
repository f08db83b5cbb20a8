import { type FSWatcher, watch } from 'node:fs'
import { readFile, realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

export interface Watching {
  close(): void
}

const SETTLE_MS = 50
/** Some file systems tell of no change. */
const REREAD_MS = 10_000

/**
 * Calls `onText` with the file's text whenever it is another than before, and `onGone` once it cannot be read any more.
 * The folder is watched and not the file, so a new file that is renamed over it is seen, also behind symbolic links as
 * Kubernetes makes them. The file need not be there yet.
 */
export function watchText(
  path: string,
  current: string | undefined,
  onText: (text: string) => void,
  onGone: (error: unknown) => void = () => {},
): Watching {
  let known = current
  let isGone = false
  let closed = false
  let settle: NodeJS.Timeout | undefined
  const watchers: FSWatcher[] = []
  const folders = new Set<string>()

  async function reread(): Promise<void> {
    try {
      const text = await readFile(path, 'utf8')
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

  function changed(): void {
    clearTimeout(settle)
    settle = setTimeout(() => void reread(), SETTLE_MS)
  }

  function watchFolder(folder: string): void {
    if (closed || folders.has(folder)) return
    folders.add(folder)
    try {
      const watcher = watch(folder, { persistent: false }, changed)
      watcher.on('error', () => watcher.close())
      watchers.push(watcher)
    } catch {
      // The timer below still sees changes.
    }
  }

  watchFolder(dirname(path))
  realpath(path).then(
    real => watchFolder(dirname(real)),
    () => {},
  )
  const timer = setInterval(() => void reread(), REREAD_MS)
  timer.unref()
  return {
    close() {
      closed = true
      clearTimeout(settle)
      clearInterval(timer)
      for (const watcher of watchers) watcher.close()
    },
  }
}
