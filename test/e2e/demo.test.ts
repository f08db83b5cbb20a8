/** What `npm start` runs, started the way a person would. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { expect, it, vi } from 'vitest'
import { CHECKS, KEPT_CHECKS } from '../../cli/demo/checks.ts'
import { makeFiles } from '../../cli/demo/files.ts'
import { runChecks } from '../../cli/demo/run-checks.ts'
import { Demo } from '../../cli/demo/topology.ts'
import { needs } from '../support/needs.ts'

const COMMAND = resolve(import.meta.dirname, '../../bin/sallyport.js')

/** Takes the port if it is free. */
async function take(port: number): Promise<Server> {
  const server = createServer().listen(port, '127.0.0.1')
  // If the port is taken, this rejects.
  await once(server, 'listening').catch(() => {})
  return server
}

function startDemo(args: readonly string[], environment: NodeJS.ProcessEnv = {}) {
  const env = { ...process.env, ...environment }
  const child = spawn(process.execPath, [COMMAND, 'demo', ...args], { stdio: ['ignore', 'pipe', 'pipe'], env })
  const lines: string[] = []
  const printed = new Promise<void>(resolve => {
    createInterface(child.stdout).on('line', line => {
      lines.push(line)
      if (line.startsWith('Ctrl-C')) resolve()
    })
  })
  let errors = ''
  child.stderr.on('data', text => {
    errors += text
  })
  // The pipes close once no process holds them.
  const done = once(child, 'close').then(([code]) => ({ code, lines, errors }))
  return { child, lines, printed, done }
}

it('--check: every kind of traffic through three entry points, even where the usual ports are taken; exit 0', {
  tags: ['slow'],
}, async () => {
  const taken = await Promise.all([8080, 8443, 8081, 8082, 3017, 12_000].map(take))
  // The settings of the user's own client are not for the demo.
  const home = mkdtempSync(join(tmpdir(), 'sallyport-home-'))
  mkdirSync(join(home, 'sallyport'))
  writeFileSync(join(home, 'sallyport', 'client.yaml'), 'target: http://127.0.0.1:1\ntoken.command: false\n')
  const { code, lines, errors } = await startDemo(['--check'], { XDG_CONFIG_HOME: home }).done
  for (const server of taken) server.close()
  rmSync(home, { recursive: true })
  expect(lines.filter(line => line.startsWith('FAIL')).concat(errors)).toEqual([''])
  expect(lines.filter(line => line.startsWith('pass'))).toHaveLength(
    3 * Object.keys(CHECKS).length + Object.keys(KEPT_CHECKS).length,
  )
  expect(code).toBe(0)
})

it('--check passes on the oldest Node, which has no inbox', { tags: ['slow'] }, async () => {
  const old = "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.19.0' } })"
  const options = `--import data:text/javascript,${encodeURIComponent(old)}`
  const { code, lines, errors } = await startDemo(['--check'], { NODE_OPTIONS: options }).done
  expect(lines.filter(line => line.startsWith('FAIL')).concat(errors)).toEqual([''])
  expect(lines.filter(line => line.startsWith('pass') && line.includes('tunnel '))).toHaveLength(
    Object.keys(CHECKS).length,
  )
  expect(code).toBe(0)
})

it.each([
  ['SIGINT', 0, []],
  ['SIGTERM', 130, ['--check']],
] as const)('%s while it creates its files ends it with %s, before anything starts', async (signal, code, args) => {
  const demo = startDemo(args)
  // It prints its next line once its files exist.
  await once(demo.child.stdout, 'data')
  demo.child.kill(signal)
  expect(await demo.done).toEqual({ code, lines: [expect.stringMatching(/^Making/)], errors: '' })
})

it.runIf(needs('curl'))('the printed lines work when pasted; Ctrl-C leaves no process and no file', async () => {
  const demo = startDemo([])
  await Promise.race([demo.printed, demo.done])
  const commands = demo.lines.filter(line => line.startsWith('  curl ')).map(line => line.trim())
  expect(commands.length).toBeGreaterThanOrEqual(10)
  const answers = await Promise.all(
    commands.map(command => {
      // An event stream does not end; its first event is enough.
      const ended = command.includes('/events') ? `${command} | head -n 2` : command
      return promisify(execFile)('sh', ['-c', ended.replace(/^curl/, 'curl -sS')]).then(({ stdout }) => stdout)
    }),
  )
  const find = (part: string) => answers.filter((_, i) => commands[i]?.includes(part))
  expect(find('/whoami').map(text => JSON.parse(text).service)).toEqual(['app-proxy', 'app-proxy', 'app-proxy'])
  expect(find('/graphql').map(text => JSON.parse(text).data.runtime.name)).toEqual(['demo', 'demo', 'demo'])
  for (const text of find('/events')) expect(text).toMatch(/^id: 1\ndata: /)
  expect(find('/webhooks/')).toEqual(['success', 'success', 'success'])
  expect(find('/metrics')).toHaveLength(3)
  for (const text of find('/metrics')) expect(text).toContain('\nsallyport_exchanges_total{')
  const kept = demo.lines.filter(line => /^ {2}(?:kill|npm run .* webhook send) /.test(line)).join('\n')
  const { stdout } = await promisify(execFile)('sh', ['-ec', kept])
  expect(stdout).toMatch(/^202 in \d+ ms, stored in the inbox as \S+\n/)
  for (const text of find('/nobody-there')) expect(text).toMatch(/access-control-allow-origin: https:\/\/ui/)
  const links = demo.lines.filter(line => /^ {2}(client|router|server) +http:/.test(line)).map(line => line.slice(10))
  expect(links).toHaveLength(3)
  for (const link of links) {
    const { origin, hash } = new URL(link)
    const login = await fetch(`${origin}/ui/login`, { method: 'POST', body: hash.slice(1) })
    expect(login.headers.get('set-cookie')).toContain('HttpOnly')
  }
  const folder = /--cacert (\S+)\/ca\.pem/.exec(commands[0] ?? '')?.[1] ?? ''
  expect(existsSync(folder)).toBe(true)
  demo.child.kill('SIGINT')
  const { code } = await demo.done
  expect(code).toBe(0)
  expect(existsSync(folder)).toBe(false)
})

it('without nginx, the ingress entry point is the router service itself', { tags: ['slow'] }, async () => {
  const files = await makeFiles()
  const demo = new Demo(files, '')
  const said = vi.spyOn(console, 'log').mockReturnValue()
  try {
    const entries = (await demo.start()).filter(entry => entry.name === 'ingress')
    expect(await runChecks(entries, files.secret, AbortSignal.timeout(120_000))).toBe(0)
    expect(said).toHaveBeenCalledTimes(Object.keys(CHECKS).length)
  } finally {
    await demo.stop()
    await files.remove()
  }
})

it('an unknown argument is a usage error', async () => {
  const { code, errors } = await startDemo(['--chekc']).done
  expect(code).toBe(2)
  expect(errors).toContain('--chekc')
})
