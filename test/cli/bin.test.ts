import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { eventually } from '../support/until.ts'
import { Running } from './process.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-bin-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

interface Ended {
  readonly code: number
  readonly out: string
  readonly notes: string
}

function run(program: string, args: readonly string[]): Promise<Ended> {
  return new Promise(resolve => {
    execFile(program, args, (error, out, notes) => resolve({ code: error ? Number(error.code) : 0, out, notes }))
  })
}

/** Makes the Node that runs a file claim to be an older one. */
function pretend(version: string): string {
  const source = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
  return `data:text/javascript,${encodeURIComponent(source)}`
}

const nodeFlags = (version: string) => ['--import', pretend(version)]

/** An installed package: bin/ and dist/, no sources. */
function installedPackage(): string {
  const root = join(folder, 'package')
  mkdirSync(join(root, 'dist/cli'), { recursive: true })
  cpSync('bin', join(root, 'bin'), { recursive: true })
  writeFileSync(join(root, 'package.json'), '{ "type": "module" }')
  writeFileSync(join(root, 'dist/cli/main.js'), 'console.log("dist", ...process.argv.slice(2)); process.exitCode = 3')
  return join(root, 'bin/sallyport.js')
}

describe('installed', () => {
  test('runs dist/', async () => {
    expect(await run(process.execPath, [installedPackage(), 'a', '--b'])).toEqual({
      code: 3,
      out: 'dist a --b\n',
      notes: '',
    })
  })

  test.each(['20.20.2', '22.18.9', '18.0.0'])('under Node %s it says what it needs and exits 2', async version => {
    expect(await run(process.execPath, [...nodeFlags(version), installedPackage(), '--version'])).toEqual({
      code: 2,
      out: '',
      notes: `sallyport needs Node 22.19 or newer, this is ${version}\n`,
    })
  })

  test.each(['22.19.0', '24.0.0'])('under Node %s it runs', async version => {
    expect((await run(process.execPath, [...nodeFlags(version), installedPackage()])).out).toBe('dist\n')
  })
})

describe("as a container's first process, which no signal ends without a listener", () => {
  const first = [
    '--import',
    `data:text/javascript,${encodeURIComponent("Object.defineProperty(process, 'pid', { value: 1 })")}`,
  ]
  const start = async (main: string, signal: NodeJS.Signals) => {
    const bin = installedPackage()
    writeFileSync(join(bin, '../../dist/cli/main.js'), `${main}; console.log('here'); setInterval(() => {}, 1000)`)
    const child = spawn(process.execPath, [...first, bin], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout!, 'data')
    child.kill(signal)
    return once(child, 'exit')
  }

  test.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const)('%s ends it while it starts', async (signal, code) => {
    expect(await start('', signal)).toEqual([code, null])
  })

  test.each(['SIGTERM', 'SIGINT'] as const)('%s is left to a service that listens for it', async signal => {
    const main = `process.on('${signal}', () => setImmediate(() => process.exit(0)))`
    expect(await start(main, signal)).toEqual([0, null])
  })
})

/** Small files that import nothing but each other: "did you mean", the version, limits, stores. */
const LIGHT =
  /\/(limits|public-url|access\/open-path|trace\/sampling|http\/(headers|field-names|http1\/bytes)|base\/(address|errors|held-text|is-record|limit|members|memoize-last|names|nearest|path|token-algorithms|units|version)|directory\/(stores|redis-options|redis-url))\.ts$/

describe.each(['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const)('%s before a service has listeners', signal => {
  test.each([false, true])('changes nothing, and opens no debugger (under another Node: %s)', async isOther => {
    const other = join(folder, 'other-node-of-signals')
    if (isOther) copyFileSync(process.execPath, other)
    const hook = [
      "import { registerHooks } from 'node:module'",
      'registerHooks({ load(url, context, next) {',
      `if (url.endsWith('/cli/main.ts')) process.kill(process.pid, '${signal}')`,
      'return next(url, context) } })',
    ].join('\n')
    const environment = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(hook)}` }
    const routes = join(folder, 'no-routes.yaml')
    writeFileSync(routes, 'routes: []\n')
    const args = ['router', '--listen', '127.0.0.1:0', '--admin.listen', 'off', '--routes', routes]
    const router = new Running(args, environment, isOther ? other : undefined)
    await router.address('router')
    expect(await router.end('SIGTERM')).toBe(0)
    expect(router.text).not.toContain('Debugger')
  })
})

test('SIGUSR1 opens no debugger of a command that is no service', async () => {
  const bin = installedPackage()
  writeFileSync(join(bin, '../../dist/cli/main.js'), "process.kill(process.pid, 'SIGUSR1'); setTimeout(() => {}, 300)")
  expect(await run(process.execPath, [bin, 'status'])).toEqual({ code: 0, out: '', notes: '' })
})

describe('in a checkout', () => {
  test('runs the sources, even beside a stale dist/, and passes the exit code on', async () => {
    const { code, notes } = await run(process.execPath, ['bin/sallyport.js', 'sevrer'])
    expect(code).toBe(2)
    expect(notes).toContain('did you mean server?')
  })

  test('help, version and usage errors load no heavy module', async () => {
    const hook = [
      "import { registerHooks } from 'node:module'",
      "import { writeSync } from 'node:fs'",
      "registerHooks({ load(url, context, next) { writeSync(2, 'loads ' + url + '\\n'); return next(url, context) } })",
    ].join('\n')
    const flags = ['--import', `data:text/javascript,${encodeURIComponent(hook)}`]
    for (const args of [['--help'], ['--version'], ['server', '--help'], ['client', '--nonsense'], ['nonsense']]) {
      const { notes } = await run(process.execPath, [...flags, 'bin/sallyport.js', ...args])
      const loaded = notes.split('\n').filter(line => line.startsWith('loads file:'))
      expect(loaded.some(line => line.endsWith('/cli/run.ts'))).toBe(true)
      const heavy = loaded
        .filter(line => !LIGHT.test(line))
        .filter(line =>
          /node_modules|\/(server|client|router|protocol|certs|admin)\//.test(line.replace(/.*\/cli\//, '')),
        )
      expect(heavy).toEqual([])
    }
  })

  test('under another Node it passes on to the pinned one, with signals and exit codes', async () => {
    const other = join(folder, 'other-node')
    copyFileSync(process.execPath, other)
    expect(await run(other, ['bin/sallyport.js', 'certs', 'show', '/nowhere'])).toMatchObject({ code: 3, out: '' })
    const routes = join(folder, 'routes.yaml')
    writeFileSync(routes, 'routes: []\n')
    const args = ['router', '--listen', '127.0.0.1:0', '--admin.listen', 'off', '--routes', routes]
    const router = new Running(args, {}, other)
    await router.address('router')
    expect(await router.end('SIGINT')).toBe(0)
    expect(router.lines.at(-1)).toMatchObject({ msg: 'stopped' })
  })

  test('the time of --help is reported', async () => {
    const started = performance.now()
    await run(process.execPath, ['bin/sallyport.js', '--help'])
    console.log(`sallyport --help took ${Math.round(performance.now() - started)} ms`)
  })
})

test('a command whose answer never arrives has failed', async () => {
  const hook = 'globalThis.fetch = () => new Promise(() => {})'
  const flags = ['--import', `data:text/javascript,${encodeURIComponent(hook)}`]
  const ended = await run(process.execPath, [...flags, 'bin/sallyport.js', 'status', '--admin', 'http://127.0.0.1:9'])
  expect(ended).toEqual({ code: 1, out: '', notes: 'sallyport: ended early: nothing is left that it could wait for\n' })
})

test.each(['SIGINT', 'SIGQUIT', 'SIGUSR2'] as const)('%s ends the demo, whose folder is removed', async signal => {
  const own = mkdtempSync(join(folder, 'demo-'))
  const running = new Running(['demo'], { TMPDIR: own })
  await eventually(() => expect(readdirSync(own)).toHaveLength(1))
  expect(await running.end(signal)).toBe(0)
  expect(readdirSync(own)).toEqual([])
})
