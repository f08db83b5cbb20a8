// @module-tag slow
/** What a user gets: the tarball, installed in an empty folder. */
import { execFile, spawn } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Http1Caller } from './support/caller-http1.ts'

const run = promisify(execFile)
const ROOT = resolve(import.meta.dirname, '..')
const NOT_COPIED = new Set(['node_modules', '.git', 'dist', 'coverage'])
/** The pinned Node first: npm's scripts find it, whatever the machine's own is. */
const ENV = { ...process.env, PATH: `${resolve(process.execPath, '..')}:${process.env.PATH}` }

let folder: string
/** The user's own project. */
let user: string
let packed: string[]

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-pack-'))
  const checkout = join(folder, 'checkout')
  user = join(folder, 'user')
  await copyCheckout(checkout)
  const { stdout } = await run('npm', ['pack', '--json', '--silent', '--pack-destination', folder], {
    cwd: checkout,
    env: ENV,
    maxBuffer: 16 * 1024 * 1024,
  })
  const [report] = Object.values(JSON.parse(stdout.slice(stdout.search(/^[[{]/m)))) as [
    { filename: string; files: { path: string }[] },
  ]
  packed = report.files.map(file => file.path)
  await mkdir(user)
  await writeFile(join(user, 'package.json'), '{ "name": "user", "private": true, "type": "module" }')
  const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error', '--prefer-offline']
  await run('npm', ['install', ...quiet, join(folder, report.filename)], { cwd: user, env: ENV })
})

afterAll(() => rm(folder, { recursive: true, force: true }))

/** The work tree is copied, so that building the package leaves the developer's own `dist` alone. */
async function copyCheckout(to: string): Promise<void> {
  await cp(ROOT, to, { recursive: true, filter: path => !NOT_COPIED.has(path.slice(ROOT.length + 1)) })
  await symlink(join(ROOT, 'node_modules'), join(to, 'node_modules'))
}

const node = (args: string[]) => run(process.execPath, args, { cwd: user, env: ENV })
const sallyport = (...args: string[]) => node([join(user, 'node_modules/.bin/sallyport'), ...args])

describe('the tarball', () => {
  it('holds what a user needs, and nothing else', () => {
    for (const path of ['package.json', 'README.md', 'LICENSE', 'bin/sallyport.js', 'dist/client/index.js']) {
      expect(packed).toContain(path)
    }
    expect(packed).toContain('dist/client/index.d.ts')
    const strays = packed
      .filter(path => !/\.md$|^examples\//.test(path))
      .filter(path => /\.(pem|jwk|p12)$|^(test|load-tests|scripts|tools|node_modules)\/|[^d]\.ts$/.test(path))
    expect(strays).toEqual([])
  })

  it('puts no node into the .bin of the user', async () => {
    const programs = await readdir(join(user, 'node_modules/.bin'))
    expect(programs).toContain('sallyport')
    expect(programs).not.toContain('node')
  })
})

describe('the library', () => {
  it('can be required: no module awaits at its top', async () => {
    const entryPoints = [
      'sallyport',
      ...['server', 'client', 'router', 'protocol', 'certs', 'tracing'].map(name => `sallyport/${name}`),
    ]
    const script = entryPoints.map(entry => `console.log(typeof require('${entry}'))`).join('\n')
    await writeFile(join(user, 'require.cjs'), script)
    const { stdout, stderr } = await node(['require.cjs'])
    expect(stdout.trim().split('\n')).toEqual(entryPoints.map(() => 'object'))
    expect(stderr).toBe('')
  })

  it('sallyport/client loads no zod, redis, x509, nor the command', async () => {
    await writeFile(
      join(user, 'loaded.mjs'),
      `import { registerHooks } from 'node:module'
      registerHooks({ load: (url, context, next) => (console.log(url), next(url, context)) })
      await import('sallyport/client')`,
    )
    const { stdout } = await node(['loaded.mjs'])
    const urls = stdout.trim().split('\n')
    expect(urls.some(url => url.endsWith('/dist/client/index.js'))).toBe(true)
    expect(
      urls.filter(url => /zod|redis|x509|pino|prometheus-io|\/dist\/(cli|admin|certs|server)\//.test(url)),
    ).toEqual([])
  })

  it('its declarations need the types of Node alone, wholly checked', async () => {
    const entryPoints = [
      'sallyport',
      ...['server', 'client', 'router', 'protocol', 'certs', 'tracing'].map(name => `sallyport/${name}`),
    ]
    const types = join(user, 'types')
    await mkdir(join(types, 'node_modules'), { recursive: true })
    await writeFile(
      join(types, 'use.ts'),
      entryPoints.map((entry, i) => `export * as d${i} from '${entry}'`).join('\n'),
    )
    await mkdir(join(types, 'node_modules/@types'))
    for (const name of ['@types/node', 'undici-types']) {
      await symlink(join(ROOT, 'node_modules', name), join(types, 'node_modules', name))
    }
    const options = ['--strict', '--skipLibCheck', 'false', '--module', 'nodenext', '--target', 'es2024']
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
    const checked = run(process.execPath, [tsc, ...options, '--types', 'node', '--noEmit', 'use.ts'], {
      cwd: types,
      env: ENV,
    })
    await expect(checked.catch(error => (error as { stdout: string }).stdout)).resolves.toMatchObject({ stdout: '' })
  })

  it('the examples pass tsc --strict against the declarations of the package', async () => {
    await cp(join(ROOT, 'examples'), join(user, 'examples'), { recursive: true, filter: path => !path.endsWith('.md') })
    // What the examples use besides the package, and the types that a TypeScript project has anyway.
    for (const name of ['fastify', '@types']) {
      await symlink(join(ROOT, 'node_modules', name), join(user, 'node_modules', name)).catch(ignoreExisting)
    }
    const files = (await readdir(join(user, 'examples'))).filter(name => name.endsWith('.ts'))
    expect(files.length).toBeGreaterThan(3)
    const emit = ['--noEmit', '--module', 'nodenext', '--target', 'es2024', '--lib', 'es2024,esnext.disposable']
    const options = ['--strict', '--types', 'node', ...emit]
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
    await node([tsc, ...options, ...files.map(name => join('examples', name))]).catch(error => {
      throw new Error(error.stdout)
    })
  })
})

describe('the command and an example, together', () => {
  it('run the demo', async () => {
    const { stdout } = await sallyport('demo', '--check')
    expect(stdout).toContain('All checks passed.')
  })

  it('print commands of the demo that work without a checkout', async () => {
    const demo = spawn(process.execPath, [join(user, 'node_modules/.bin/sallyport'), 'demo'], { cwd: user, env: ENV })
    const lines: string[] = []
    for await (const line of createInterface(demo.stdout)) {
      lines.push(line)
      if (line.startsWith('Ctrl-C')) demo.kill('SIGINT')
    }
    expect(lines).toContain('  sallyport traces --last 1')
    expect(lines.filter(line => line.includes('npm run'))).toEqual([])
  })

  it('carry a request', async () => {
    await sallyport('certs', 'init', '--out', 'certs', '--host', '*.tunnels.localhost', '127.0.0.1')
    await sallyport('keys', 'create', '--out', 'keys')
    const token = await sallyport('token', 'create', '--key', 'keys/private.jwk', '--runtime', 'demo', '--ttl', '1h')
    await writeFile(join(user, 'token'), token.stdout.trim())
    const tls = (name: string) => [
      `--${name}.tls.cert`,
      'certs/server.pem',
      `--${name}.tls.key`,
      'certs/server-key.pem',
    ]
    const server = startPacked([
      ...['node_modules/.bin/sallyport', 'server', '--log.format', 'json', '--admin.listen', 'off'],
      ...['--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', ...tls('public'), ...tls('control')],
      ...['--domain', 'tunnels.localhost', '--auth.jwks.file', 'keys/jwks.json'],
    ])
    const portOf = async (name: string) => {
      const line = JSON.parse(await server.line(text => text.includes('"listening"') && text.includes(`"${name}"`)))
      return Number(line.address.split(':').at(-1))
    }
    const [port, control] = await Promise.all([portOf('public'), portOf('control')])
    const client = startPacked(['examples/client-function.ts'], { SERVER: `wss://127.0.0.1:${control}` })
    await client.line(text => text === 'connected as demo')
    const ca = await readFile(join(user, 'certs/ca.pem'), 'utf8')
    const caller = await Http1Caller.connect({ port, authority: `demo.tunnels.localhost:${port}`, ca })
    const reply = await caller.ask({ path: '/' })
    expect([reply.status, JSON.parse(reply.content.toString())]).toEqual([
      200,
      { hello: 'from behind the firewall', caller: '127.0.0.1' },
    ])
    caller.close()
    expect(await client.stop()).toBe(0)
    expect(await server.stop()).toBe(0)
  })

  it('load an upstream, and say what is missing without autocannon', async () => {
    const upstream = startPacked(['node_modules/.bin/sallyport', 'load-test', '--serve', '127.0.0.1:0'])
    const line = await upstream.line(text => text.includes('is listening on'))
    const [url] = /http:\/\/[\d.:]+/.exec(line) ?? ['']
    const load = (...args: string[]) => sallyport('load-test', url, '--duration', '1s', '--out', 'report', ...args)
    const { stdout } = await load('--only', 'small', '--only', 'bulk')
    expect(stdout).toContain('16 MiB down and up')
    expect(await readFile(join(user, 'report/report.html'), 'utf8')).toContain('No answer was wrong')
    await rename(join(user, 'node_modules/autocannon'), join(user, 'node_modules/.autocannon'))
    const refused = await load('--only', 'small', '--rate', 'max', '--yes').catch(error => error)
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('npm install autocannon')])
    expect(await upstream.stop()).toBe(0)
  })
})

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error
}

/** A process in the user's folder. */
function startPacked(args: string[], env: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, args, { cwd: user, env: { ...ENV, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const lines: string[] = []
  const waiting = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr]) {
    createInterface(stream).on('line', text => {
      lines.push(text)
      for (const wake of waiting) wake()
    })
  }
  const ended = new Promise<number | null>(resolve => child.once('close', resolve))
  ended.then(() => {
    for (const wake of waiting) wake()
  })
  const line = (fits: (text: string) => boolean) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const found = lines.find(fits)
        if (found !== undefined) resolve(found)
        else if (child.exitCode !== null) reject(new Error(`ended with ${child.exitCode}: ${lines.join('\n')}`))
        else waiting.add(look)
      }
      look()
    })
  return {
    line,
    stop: () => {
      child.kill('SIGTERM')
      return ended
    },
  }
}
