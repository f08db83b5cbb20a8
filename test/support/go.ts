/** Builds what suites have in Go. Modules come through the ordinary client; the results are not kept. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { program } from './needs.ts'

/** `output` is a file, or a folder where `what` is more than one program (`tool`: all tools of the module). */
export async function goBuild(
  folder: string,
  output: string,
  what = '.',
  env: Record<string, string> = {},
): Promise<void> {
  await promisify(execFile)(program('go'), ['build', '-buildvcs=false', '-o', output, what], {
    cwd: folder,
    env: { ...process.env, GOTOOLCHAIN: 'local', ...env },
  })
}

/** Cold caches beside a busy core. */
export const GO_BUILD_MS = 900_000
