#!/usr/bin/env node
// Runs every npm script: installs what is missing, finds a Node that can run the sources, and runs the task with it.
// Plain JavaScript that Node 18 can run.
import { rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runChild } from './child.js'
import { install } from './install.js'
import { findNode, remedy } from './pinned-node.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const TSC = 'node_modules/typescript/bin/tsc'
const BIOME = 'node_modules/@biomejs/biome/bin/biome'

const TASKS = {
  cli: args => ['bin/sallyport.js', ...args],
  test: args => ['scripts/test.ts', ...args],
  bench: args => ['load-tests/bench.ts', ...args],
  fuzz: args => ['test/fuzz/run.ts', ...args],
  walk: args => ['test/walk/run.ts', ...args],
  mutants: args => ['test/security/mutations/refusals.ts', ...args],
  chaos: args => ['test/chaos/run.ts', ...args],
  docs: args => ['scripts/docs.ts', ...args],
  site: args => ['tools/site/build.mjs', ...args],
  release: args => ['scripts/release.ts', ...args],
  lint: args => ['scripts/lint.ts', ...args],
  format: args => (args.includes('--check') ? [BIOME, 'format'] : [BIOME, 'format', '--write']),
  typecheck: args => ['scripts/typecheck.ts', ...args],
  build: args => {
    rmSync(join(root, 'dist'), { recursive: true, force: true })
    return [TSC, '--project', 'tsconfig.build.json', ...args]
  },
}

// Node would open its debugger, for everybody on this machine.
process.on('SIGUSR1', () => {})
process.exitCode = await main(process.argv[2], process.argv.slice(3))

async function main(name, args) {
  if (!Object.hasOwn(TASKS, name ?? '')) return refuse(`usage: node scripts/run.js ${Object.keys(TASKS).join('|')} ...`)
  const code = await install(root)
  if (code !== 0) return code
  const node = findNode(root)
  if (node === undefined) return refuse(remedy(root))
  return runChild(node, TASKS[name](args), { cwd: root })
}

function refuse(sentence) {
  console.error(sentence)
  return 2
}
