#!/usr/bin/env node
// The `sallyport` command. In a checkout it runs the sources on the pinned Node, no matter which Node started this file and what
// is in dist/. As an installed package it runs dist/. This is plain JavaScript that Node 18 can parse.
import './signals.js'
import { existsSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(realpathSync(fileURLToPath(import.meta.url))))
const sources = join(root, 'cli/main.ts')
const isCheckout = existsSync(join(root, 'tools/node/package.json')) && existsSync(sources)

if (isCheckout) await runSources()
else await runPackage()

async function runSources() {
  const { findNode, remedy } = await import('../scripts/pinned-node.js')
  const node = findNode(root)
  if (node === undefined) return refuse(remedy(root))
  if (realpathSync(node) === realpathSync(process.execPath)) return runHere(sources)
  const signals = new URL('signals.js', import.meta.url).href
  const { runChild } = await import('../scripts/child.js')
  process.exitCode = await runChild(node, ['--import', signals, sources, ...process.argv.slice(2)])
}

async function runPackage() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isSupported = major > 22 || (major === 22 && minor >= 19)
  if (!isSupported) return refuse(`sallyport needs Node 22.19 or newer, this is ${process.versions.node}`)
  await runHere(join(root, 'dist/cli/main.js'))
}

/** @param {string} main */
function runHere(main) {
  return import(pathToFileURL(main).href)
}

/** @param {string} sentence */
function refuse(sentence) {
  process.stderr.write(`${sentence}\n`)
  process.exitCode = 2
}
