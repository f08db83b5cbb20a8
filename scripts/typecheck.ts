/** `npm run typecheck`: checks the program, then the scripts of the admin page. Arguments are passed to the compiler. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

for (const project of ['.', 'admin/web']) {
  const args = ['node_modules/typescript/bin/tsc', '--project', project, ...process.argv.slice(2)]
  process.exitCode ||= spawnSync(process.execPath, args, { cwd: ROOT, stdio: 'inherit' }).status ?? 1
}
