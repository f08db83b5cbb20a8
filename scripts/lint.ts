/** `npm run lint`: checks the sources, then the documentation. Arguments are passed to Biome. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const BIOME = [
  'node_modules/@biomejs/biome/bin/biome',
  'check',
  '--formatter-enabled=false',
  '--error-on-warnings',
  ...process.argv.slice(2),
]

for (const step of [BIOME, ['scripts/docs.ts', '--check']]) {
  process.exitCode ||= spawnSync(process.execPath, step, { cwd: ROOT, stdio: 'inherit' }).status ?? 1
}
