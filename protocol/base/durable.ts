/** Files that must survive a power cut. A file that was synced and then linked or renamed can still lose its new name. */
import { closeSync, fsyncSync, openSync } from 'node:fs'
import { open } from 'node:fs/promises'

/** Windows and some file systems cannot sync a folder, and some folders may be written to but not read. */
const UNABLE: ReadonlySet<unknown> = new Set(['EACCES', 'EPERM', 'EISDIR', 'EINVAL', 'ENOTSUP', 'ENOSYS', 'EROFS'])

/** Makes the names in a folder, or the content of a file, durable where the system can. */
export async function makeDurable(path: string): Promise<void> {
  try {
    const handle = await open(path)
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  } catch (error) {
    ignoreUnable(error)
  }
}

/** The same, synchronously. */
export function makeDurableSync(path: string): void {
  try {
    const descriptor = openSync(path, 'r')
    try {
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
  } catch (error) {
    ignoreUnable(error)
  }
}

function ignoreUnable(error: unknown): void {
  if (!UNABLE.has((error as NodeJS.ErrnoException).code)) throw error
}
