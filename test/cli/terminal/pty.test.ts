import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createKeys, createToken } from '../../../certs/index.ts'
import { needs } from '../../support/needs.ts'
import { eventually } from '../../support/until.ts'
import { Running } from '../process.ts'
import { sallyport } from '../run.ts'

let folder: string
let server: Running
const file = (name: string) => join(folder, name)
const LISTEN = ['--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--admin.listen', '127.0.0.1:0']

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-pty-'))
  mkdirSync(file('run'), { mode: 0o700 })
  await sallyport(['certs', 'init', '--out', folder, '--host', '127.0.0.1'])
  const keys = await createKeys()
  writeFileSync(file('jwks.json'), JSON.stringify(keys.jwks))
  writeFileSync(file('token'), (await createToken({ key: keys.privateJwk, runtime: 'demo' })).token)
  server = new Running(serverArgs(), { RUNTIME_DIRECTORY: file('run') })
  await server.address('public')
})
afterAll(async () => {
  await server.end('SIGKILL')
  rmSync(folder, { recursive: true })
})

function serverArgs(): string[] {
  const tls = ['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')]
  return ['server', ...LISTEN, ...tls, '--domain', 'tunnels.localhost', '--auth.jwks.file', file('jwks.json')]
}

const ESC = String.fromCharCode(27)
const COLOUR = new RegExp(`${ESC}\\[\\d*m`, 'g')
const typed: Typed[] = []
afterEach(() => {
  for (const one of typed.splice(0)) one.end()
})

/** A command at its own terminal, which `script` creates. */
class Typed {
  raw = ''
  /** Without colours. */
  text = ''
  readonly #child: ChildProcess
  #wake: (() => void)[] = []
  #ended = false

  constructor(args: readonly string[], environment: Record<string, string> = {}, columns = 100) {
    const words = [process.execPath, 'bin/sallyport.js', ...args].map(word => `'${word}'`).join(' ')
    const line = `stty cols ${columns} rows 40 && exec ${words}`
    this.#child = spawn('script', ['--quiet', '--return', '--flush', '--command', line, '/dev/null'], {
      env: { ...process.env, TERM: 'xterm', RUNTIME_DIRECTORY: file('run'), ...environment },
    })
    typed.push(this)
    this.#child.stdout!.setEncoding('utf8').on('data', chunk => {
      this.raw += chunk
      this.text = this.raw.replaceAll(COLOUR, '')
      this.#changed()
    })
    this.#child.once('close', () => {
      this.#ended = true
      this.#changed()
    })
  }

  #changed(): void {
    for (const wake of this.#wake.splice(0)) wake()
  }

  async says(pattern: RegExp): Promise<void> {
    while (!pattern.test(this.text)) {
      if (this.#ended) throw new Error(`it ended without ${pattern}:\n${this.text}`)
      await new Promise<void>(resolve => this.#wake.push(resolve))
    }
  }

  /** The terminal is gone, and what ran in it. */
  end(): void {
    this.#child.kill('SIGKILL')
  }

  press(key: string): void {
    this.#child.stdin!.write(key)
  }

  /** Ctrl-C; resolves to the exit code. */
  async interrupt(): Promise<number | null> {
    this.press('\x03')
    return await this.exit()
  }

  async exit(): Promise<number | null> {
    const [code] = await once(this.#child, 'close')
    return code
  }
}

async function clientArgs(...more: string[]): Promise<string[]> {
  const to = ['--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')]
  return ['client', ...to, '--token.file', file('token'), '--admin.listen', '127.0.0.1:0', ...more]
}

async function get(path: string, times = 1): Promise<number[]> {
  const [, port] = (await server.address('public')).split(':')
  const statuses: number[] = []
  for (let n = 0; n < times; n++) {
    const sent = request({ port, path, headers: { host: 'demo.tunnels.localhost' }, agent: false }).end()
    const [response] = await once(sent, 'response')
    await once(response.resume(), 'end')
    statuses.push(response.statusCode)
  }
  return statuses
}

/** Asks until `client`, whose target is down, says so: before that, it may not be connected. */
async function failing(client: Typed, line: RegExp): Promise<void> {
  const asking = async () => {
    await get('/x')
    expect(client.text).toMatch(line)
  }
  await eventually(asking, 100)
}

describe.runIf(needs('script'))('at a terminal', () => {
  test('client PORT: what is running, a line per request, repeats folded, why it fails; Ctrl-C ends it with 0', async () => {
    const service = createServer((_, response) => response.end('hello'))
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    const { port } = service.address() as AddressInfo
    const typed = new Typed(await clientArgs(String(port)))
    await typed.says(new RegExp(`target {4}http://localhost:${port}\r\n`))
    expect(typed.text).toMatch(/public {4}http:\/\/demo\.tunnels\.localhost:\d+\r\n/)
    expect(typed.text).toMatch(/page {6}http:\/\/\S+\r\n/)
    expect(typed.text.split('\r\n')).toHaveLength(4)
    await get('/hello', 12)
    await typed.says(/200.* GET .*\/hello .* ms.* 5 B.* x12/)
    service.close()
    service.closeAllConnections()
    expect(await get('/gone')).toEqual([502])
    await typed.says(/502.*\/gone.*upstream refused/)
    await typed.says(/Nothing is listening at the target: start the service/)
    expect(typed.text).not.toMatch(/[{]"/)
    expect(await typed.interrupt()).toBe(0)
    expect(typed.text).toContain('stopping: open requests have 30 s')
  })

  test('NO_COLOR and -q: only a failure, without colours', async () => {
    const quiet = new Typed(await clientArgs('127.0.0.1:9', '-q'), { NO_COLOR: '1' }, 60)
    await failing(quiet, /warn an upstream failed/)
    expect(quiet.text).not.toMatch(/public {4}|target {4}/)
    expect(await quiet.interrupt()).toBe(0)
    expect(quiet.raw).not.toMatch(COLOUR)
  })

  test('-v shows everything', async () => {
    const loud = new Typed(await clientArgs('http://127.0.0.1:9', '-v'))
    await loud.says(/info.*connected session=\S+ connection=0/)
    await failing(loud, /502.*upstream refused/)
    expect(await loud.interrupt()).toBe(0)
  })

  test('server: callers, clients, and who connects', async () => {
    const typed = new Typed(serverArgs())
    await typed.says(/callers {3}http:\/\/<runtime>\.tunnels\.localhost:\d+ at 127\.0\.0\.1:\d+\r\n/)
    await typed.says(/clients {3}wss:\/\/127\.0\.0\.1:\d+\r\n/)
    expect(await typed.interrupt()).toBe(0)
  })

  test('server: where clients dial at a shared address', async () => {
    const tls = ['--public.tls.cert', file('server.pem'), '--public.tls.key', file('server-key.pem')]
    const rest = ['--domain', 'tunnels.localhost', '--auth.jwks.file', file('jwks.json')]
    const shared = ['--public.listen', '127.0.0.1:0', ...tls, '--control.host', 'connect.localhost']
    const typed = new Typed(['server', ...shared, ...rest])
    await typed.says(
      /callers {3}https:\/\/<runtime>\.tunnels\.localhost:(\d+) .*\r\n.*clients {3}wss:\/\/connect\.localhost:\1\r\n/,
    )
    expect(await typed.interrupt()).toBe(0)
  })

  test('a terminal stopped with Ctrl-S stops a server neither from serving nor from exiting', async () => {
    const typed = new Typed(serverArgs())
    await typed.says(/callers .*:\d+\r\n/)
    await typed.says(/clients .*\r\n/)
    const [, port] = /callers .*:(\d+)\r/.exec(typed.text)!
    typed.press('\x13')
    let last = ''
    await eventually(async () => {
      const isShown = last === '' || typed.text.includes(last)
      last = `/request-${performance.now()}`
      expect((await fetch(`http://127.0.0.1:${port}${last}`)).status).toBe(404)
      expect(isShown).toBe(false)
    }, 100)
    const isOther = (name: string) => name.startsWith('server-') && name !== `server-${server.pid}.json`
    const [name] = readdirSync(file('run')).filter(isOther)
    const { pid } = JSON.parse(readFileSync(file(`run/${name}`), 'utf8'))
    const exit = typed.exit()
    process.kill(pid, 'SIGTERM')
    expect(await exit).toBe(0)
  })
})
