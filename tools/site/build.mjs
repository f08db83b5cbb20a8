// Copies the documents of this checkout beside the site's own packages, makes pages of them, and checks every link.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, rmSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const root = resolve(here, '../..')
const pages = join(here, 'pages')
const run = (program, args, cwd) =>
  execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })

if (!existsSync(join(here, 'node_modules/vitepress')))
  run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], here)
rmSync(pages, { recursive: true, force: true })
const files = run('git', ['ls-files', '-z', '*.md', '*.svg', '*.png'], root).split('\0')
for (const file of files)
  if (/^[^.]/.test(file) && !file.startsWith('tools/')) cpSync(join(root, file), join(pages, file))
cpSync(join(here, 'index.md'), join(pages, 'index.md'))

process.stdout.write(run(process.execPath, ['node_modules/vitepress/bin/vitepress.js', 'build', '.'], here))
process.stdout.write(run(process.execPath, ['check.mjs'], here))
