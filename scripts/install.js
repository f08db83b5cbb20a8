// Runs `npm ci` if it is needed. Plain JavaScript that Node 18 can run.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runChild } from './child.js'
import { withLock } from './lock.js'

const QUIET = ['--no-audit', '--no-fund', '--loglevel=error', '--no-update-notifier', '--engine-strict=false']
const WHOLE = ['--include=dev', '--include=optional', '--ignore-scripts']

/** Makes `node_modules` match the lockfile. Resolves to 0, or to npm's exit code. */
export async function install(root) {
  if (isInstalled(root)) return 0
  const onWait = () => console.error('sallyport: another process is installing the packages; waiting for it ...')
  return withLock(join(root, '.installing'), onWait, () => (isInstalled(root) ? 0 : runNpm(root)))
}

async function runNpm(root) {
  console.error('sallyport: installing packages with "npm ci"; this may take a minute or two ...')
  const [program, first] = npm()
  const shell = first.length === 0 && process.platform === 'win32'
  const code = await runChild(program, [...first, 'ci', ...QUIET, ...WHOLE], { cwd: root, shell, isAbandoned: true })
  if (code === 0) return code
  if (code > 128) {
    console.error('sallyport: the installation was interrupted; the next start will begin it again.')
    return code
  }
  console.error(`sallyport: "npm ci" failed (exit ${code}); fix the cause above and start again.`)
  return code
}

/**
 * npm writes `node_modules/.package-lock.json` last, when everything is in place, and `npm ci` deletes it first. So an incomplete
 * installation has none, and that of an older lockfile differs.
 */
export function isInstalled(root) {
  const wanted = packages(join(root, 'package-lock.json'))
  const present = packages(join(root, 'node_modules/.package-lock.json'))
  if (present === undefined) return false
  return Object.entries(wanted ?? {}).every(([path, row]) => {
    if (path === '') return true
    const there = present[path]
    return there === undefined ? row.optional === true : sameRow(row, there)
  })
}

function sameRow(row, there) {
  return row.version === there.version && row.integrity === there.integrity
}

function packages(path) {
  if (!existsSync(path)) return undefined
  try {
    return JSON.parse(readFileSync(path, 'utf8')).packages
  } catch {
    return undefined
  }
}

function npm() {
  const running = process.env.npm_execpath
  if (running !== undefined && /npm-cli\.c?js$/.test(running)) return [process.execPath, [running]]
  return [process.platform === 'win32' ? 'npm.cmd' : 'npm', []]
}
