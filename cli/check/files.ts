import { stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Probe } from '../../protocol/base/probe.ts'

/** Checks that other users of this machine cannot read the files that hold secrets, given with their settings. */
export async function probeSecretFiles(files: readonly (readonly [flag: string, file: string])[]): Promise<Probe[]> {
  return await Promise.all(
    files.map(async ([flag, file]) => {
      const mode = await stat(file).then(
        found => found.mode & 0o777,
        () => undefined,
      )
      const probe = { code: 'rights', what: `--${flag} ${file}`, expected: 'nobody else can read it' }
      if (mode === undefined) return { ...probe, status: 'warn' as const, found: 'it does not exist yet', hint: '' }
      // Windows has no users in the mode.
      if (process.getuid === undefined)
        return { ...probe, status: 'ok' as const, found: 'as its folder allows', hint: '' }
      const isOpen = (mode & 0o004) !== 0 && !(await isMounted(file))
      const found = `mode ${mode.toString(8).padStart(4, '0')}`
      return {
        ...probe,
        status: isOpen ? ('warn' as const) : ('ok' as const),
        found,
        hint: isOpen ? `chmod o= ${file}` : '',
      }
    }),
  )
}

/** Whether Kubernetes has mounted it from a Secret, for this pod alone. Then the file is a link into this folder. */
async function isMounted(file: string): Promise<boolean> {
  return await stat(join(dirname(file), '..data')).then(
    () => true,
    () => false,
  )
}
