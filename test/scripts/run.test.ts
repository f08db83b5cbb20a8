import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { findNode, isSupported, remedy } from '../../scripts/pinned-node.js'

const ROOT = resolve(import.meta.dirname, '../..')
const FAKE_NPM = `
import { mkdirSync, rmSync, copyFileSync, appendFileSync, existsSync, writeFileSync } from 'node:fs'
appendFileSync('npm-calls', process.argv.slice(2).join(' ') + '\\n')
rmSync('node_modules', { recursive: true, force: true })
mkdirSync('node_modules')
if (process.env.FAKE_NPM_HANGS) {
  writeFileSync('npm-pid', String(process.pid))
  console.error('npm is half way')
  process.on('SIGINT', () => {})
  await new Promise(() => setInterval(() => {}, 1000))
}
if (process.env.FAKE_NPM_WAITS) {
  console.error('npm waits')
  while (!existsSync('go-on')) await new Promise(resolve => setTimeout(resolve, 10))
}
if (process.env.FAKE_NPM_FAILS) process.exit(7)
copyFileSync('package-lock.json', 'node_modules/.package-lock.json')
`
const COMMAND = `
import { spawn } from 'node:child_process'
const [what, code] = process.argv.slice(2)
if (what === 'wait') {
  let seen = 0
  process.on('SIGINT', () => { console.log('SIGINT ' + ++seen); setTimeout(() => process.exit(5), 100) })
  process.on('SIGTERM', () => { console.log('SIGTERM'); process.exit(6) })
  process.on('SIGHUP', () => console.log('SIGHUP ignored'))
  const orphan = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: ['ignore', 'inherit', 'ignore'] })
  orphan.unref()
  console.log('ready')
  setInterval(() => {}, 1000)
} else {
  console.log(what + ' ran')
  process.exitCode = Number(code ?? 0)
}
`

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-scripts-'))
  await cp(join(ROOT, 'scripts'), join(folder, 'scripts'), { recursive: true })
  await mkdir(join(folder, 'bin'))
  await mkdir(join(folder, 'fake'))
  await writeFile(join(folder, 'package.json'), '{ "type": "module", "engines": { "node": ">=22.19" } }')
  await writeFile(join(folder, 'fake/npm-cli.js'), FAKE_NPM)
  await writeFile(join(folder, 'bin/sallyport.js'), COMMAND)
  await writeLock('1.0.0')
})

afterEach(() => rm(folder, { recursive: true, force: true }))

function writeLock(version: string): Promise<void> {
  const packages = { '': {}, 'node_modules/a': { version }, 'node_modules/other-platform': { version, optional: true } }
  return writeFile(join(folder, 'package-lock.json'), JSON.stringify({ packages }))
}

const npmCalls = async () => (await readFile(join(folder, 'npm-calls'), 'utf8').catch(() => '')).split('\n').length - 1

interface Run {
  child: ChildProcess
  /** Resolves to the first line of stdout or stderr that contains `text`. */
  line(text: string): Promise<string>
  /** Fires when every process that holds its stdout is gone. */
  done: Promise<{ code: number | null; output: string }>
}

function run(args: string[], env: NodeJS.ProcessEnv = {}): Run {
  const child = spawn(process.execPath, ['scripts/run.js', ...args], {
    cwd: folder,
    env: { ...process.env, npm_execpath: join(folder, 'fake/npm-cli.js'), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const lines: string[] = []
  const waiting = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr]) {
    createInterface(stream).on('line', line => {
      lines.push(line)
      for (const wake of waiting) wake()
    })
  }
  const line = (text: string) =>
    new Promise<string>(resolve => {
      const look = () => {
        const found = lines.find(line => line.includes(text))
        if (found === undefined) return
        waiting.delete(look)
        resolve(found)
      }
      waiting.add(look)
      look()
    })
  const done = once(child, 'close').then(([code]) => ({ code, output: lines.join('\n') }))
  return { child, line, done }
}

describe('installation', () => {
  it('installs in a fresh clone, says so, and then runs the task', async () => {
    const { code, output } = await run(['cli', 'hello']).done
    expect(code).toBe(0)
    expect(output).toMatch(/installing packages with "npm ci"(.|\n)*hello ran/)
    expect(await readFile(join(folder, 'npm-calls'), 'utf8')).toMatch(/^ci /)
  })

  it('does nothing if everything is in place, apart from packages for other platforms', async () => {
    await run(['cli', 'hello']).done
    await writeFile(
      join(folder, 'node_modules/.package-lock.json'),
      JSON.stringify({ packages: { 'node_modules/a': { version: '1.0.0' } } }),
    )
    const { output } = await run(['cli', 'hello']).done
    expect(output).toBe('hello ran')
    expect(await npmCalls()).toBe(1)
  })

  it('installs again when the lockfile has changed', async () => {
    await run(['cli', 'hello']).done
    await writeLock('1.0.1')
    await run(['cli', 'hello']).done
    expect(await npmCalls()).toBe(2)
  })

  it('Ctrl-C halfway leaves nothing that breaks the next start', async () => {
    const first = run(['cli', 'hello'], { FAKE_NPM_HANGS: '1' })
    await first.line('npm is half way')
    first.child.kill('SIGINT')
    expect((await first.done).code).toBe(130)
    const second = await run(['cli', 'hello']).done
    expect(second.code).toBe(0)
    expect(second.output).toContain('hello ran')
    expect(await npmCalls()).toBe(2)
  })

  it('two starts at once install once', async () => {
    const first = run(['cli', 'hello'], { FAKE_NPM_WAITS: '1' })
    await first.line('npm waits')
    const second = run(['cli', 'again'])
    await second.line('another process is installing')
    await writeFile(join(folder, 'go-on'), '')
    expect((await first.done).output).toContain('hello ran')
    expect((await second.done).output).toContain('again ran')
    expect(await npmCalls()).toBe(1)
  })

  it('a killed start does not block the next', async () => {
    const first = run(['cli', 'hello'], { FAKE_NPM_HANGS: '1' })
    await first.line('npm is half way')
    first.child.kill('SIGKILL')
    await once(first.child, 'exit')
    process.kill(Number(await readFile(join(folder, 'npm-pid'), 'utf8')), 'SIGKILL')
    expect((await run(['cli', 'hello']).done).output).toContain('hello ran')
  })

  it("passes on a failed installation's exit code and does not run the task", async () => {
    const { code, output } = await run(['cli', 'hello'], { FAKE_NPM_FAILS: '1' }).done
    expect(code).toBe(7)
    expect(output).not.toContain('hello ran')
  })
})

describe('a task', () => {
  it('ends with the exit code of the task', async () => {
    expect((await run(['cli', 'hello', '42']).done).code).toBe(42)
  })

  it('refuses an unknown task', async () => {
    const { code, output } = await run(['deploy']).done
    expect(code).toBe(2)
    expect(output).toMatch(/^usage: node scripts\/run\.js cli\|test/)
  })

  it.runIf(process.platform !== 'win32')(
    'gets one SIGINT of the two that a Ctrl-C causes, and leaves no process',
    async () => {
      const task = run(['cli', 'wait'])
      await task.line('ready')
      task.child.kill('SIGINT')
      // Waiting for what the task says would take longer on a busy machine than the two may be apart.
      await pause(20)
      task.child.kill('SIGINT')
      const { code, output } = await task.done
      expect(code).toBe(5)
      expect(output).not.toContain('SIGINT 2')
    },
  )

  it.runIf(process.platform !== 'win32')('gets SIGTERM', async () => {
    const task = run(['cli', 'wait'])
    await task.line('ready')
    task.child.kill('SIGTERM')
    expect((await task.done).code).toBe(6)
  })

  it.runIf(process.platform !== 'win32').each([
    ['SIGQUIT', 131],
    ['SIGUSR2', 140],
  ] as const)('that does not listen for %s is ended by it, and no process is left', async (signal, expected) => {
    const task = run(['cli', 'wait'])
    await task.line('ready')
    task.child.kill(signal)
    expect((await task.done).code).toBe(expected)
  })

  it.runIf(process.platform !== 'win32')('ends with the signal that ended it, not one that it ignored', async () => {
    const task = run(['cli', 'wait'])
    await task.line('ready')
    task.child.kill('SIGHUP')
    await task.line('SIGHUP ignored')
    task.child.kill('SIGUSR2')
    expect((await task.done).code).toBe(140)
  })
})

describe('the choice of Node', () => {
  it('knows which versions can run the sources', () => {
    expect(['20.20.2', '22.18.9', '22.19.0', '24.0.0', '26.10.0'].map(isSupported)).toEqual([
      false,
      false,
      true,
      true,
      true,
    ])
  })

  it("uses this checkout's pinned Node", () => {
    expect(findNode(ROOT)).toMatch(/node_modules.node-(bin-)?\w+-\w+.bin.node/)
  })

  it.runIf(process.platform === 'linux')('uses the running Node if the pinned one does not run', async () => {
    const pinned = join(folder, `node_modules/node-linux-${process.arch}/bin/node`)
    await mkdir(join(pinned, '..'), { recursive: true })
    await writeFile(pinned, '#!/lib/ld-musl-x86_64.so.1\n')
    await chmod(pinned, 0o755)
    expect(findNode(folder)).toBe(process.execPath)
    expect(remedy(folder)).toMatch(/needs Node 22\.19 or newer: this is .* cannot run the pinned one .* apk add nodejs/)
  })
})
