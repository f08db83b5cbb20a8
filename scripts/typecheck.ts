/** `npm run typecheck`: the program, then what a browser runs. Arguments are the compiler's. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

for (const project of ['.', 'admin/web']) {
  const args = ['node_modules/typescript/bin/tsc', '--project', project, ...process.argv.slice(2)]
  process.exitCode ||= spawnSync(process.execPath, args, { cwd: ROOT, stdio: 'inherit' }).status ?? 1
}
