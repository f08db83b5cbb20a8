#!/usr/bin/env node
// The `sallyport` command. In a checkout it runs the sources on the pinned Node, whatever Node started this file and
// whatever lies in dist/; as an installed package it runs dist/. It must stay readable for Node 20.
import { spawn } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(realpathSync(fileURLToPath(import.meta.url))))
const isCheckout = existsSync(join(root, 'tools/node/package.json')) && existsSync(join(root, 'cli/main.ts'))

if (isCheckout) runSources(join(root, 'cli/main.ts'))
else runHere(join(root, 'dist/cli/main.js'))

/** @param {string} main */
function runSources(main) {
  const pinned = findPinnedNode()
  if (pinned === undefined || realpathSync(pinned) === realpathSync(process.execPath)) return runHere(main)
  const child = spawn(pinned, [main, ...process.argv.slice(2)], { stdio: 'inherit' })
  child.on('error', () => runHere(main))
  child.on('spawn', () => stayBehind(child))
}

/** @param {string} main */
function runHere(main) {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major > 22 || (major === 22 && minor >= 19)) return void import(pathToFileURL(main).href)
  const remedy = isCheckout ? ' (or run "npm ci" once: it brings its own)' : ''
  process.stderr.write(`sallyport needs Node 22.19 or newer, this is ${process.versions.node}${remedy}\n`)
  process.exitCode = 2
}

/** The Node that the lockfile pins for a checkout. */
function findPinnedNode() {
  const program = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node'
  return ['node', 'node-bin']
    .map(name => join(root, 'node_modules', `${name}-${process.platform}-${process.arch}`, program))
    .find(existsSync)
}

/**
 * Passes signals on and ends as the child ends. A terminal sends its own SIGINT to both of us, so that one is not
 * passed on: the child would take it for the second, which means "at once".
 * @param {import('node:child_process').ChildProcess} child
 */
function stayBehind(child) {
  const hasTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY
  for (const signal of /** @type {const} */ (['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2'])) {
    process.on(signal, () => child.kill(signal))
  }
  process.on('SIGINT', () => hasTerminal || child.kill('SIGINT'))
  child.on('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal ?? 'SIGTERM'] ?? 0)))
}
