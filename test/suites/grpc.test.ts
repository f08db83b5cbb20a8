// @module-tag slow
/** grpc-go's interop client and server: each case through the pair. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'
import { lastingPort } from '../support/ports.ts'
import { score } from './program.ts'
import { type SuiteTarget, startTarget } from './target.ts'

/** Those that need neither credentials of a cloud nor several servers. */
const CASES = [
  'empty_unary',
  'large_unary',
  'client_streaming',
  'server_streaming',
  'ping_pong',
  'empty_stream',
  'timeout_on_sleeping_server',
  'cancel_after_begin',
  'cancel_after_first_response',
  'status_code_and_message',
  'special_status_message',
  'custom_metadata',
  'unimplemented_method',
  'unimplemented_service',
  'rpc_soak',
  'channel_soak',
  'orca_per_rpc',
  'orca_oob',
] as const
const BY_LOAD = '{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'
const CASE_MS = 120_000

describe.runIf(needs('new-go'))("grpc-go's interop", () => {
  let folder: string
  let server: ChildProcess
  let port: number
  const targets: SuiteTarget[] = []
  let places: Record<'direct' | 'TLS' | 'plain', string[]>

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-grpc-'))
    await goBuild(join(import.meta.dirname, 'grpc'), `${folder}/`, 'tool')
    port = await lastingPort()
    server = spawn(join(folder, 'server'), ['-port', String(port)], { stdio: 'ignore' })
    await listens(port)
    const [tls, plain] = [
      await startTarget(undefined, `h2c://127.0.0.1:${port}`),
      await startTarget(() => ({ public: { port: 0 } }), `h2c://127.0.0.1:${port}`),
    ]
    targets.push(tls, plain)
    await writeFile(join(folder, 'ca.pem'), tls.secrets.ca)
    const at = (number: number) => ['-server_host', '127.0.0.1', '-server_port', String(number)]
    places = {
      direct: at(port),
      TLS: [...at(tls.edgePort), '-use_tls', '-use_test_ca', '-ca_file', join(folder, 'ca.pem')],
      plain: at(plain.edgePort),
    }
  }, GO_BUILD_MS)
  afterAll(async () => {
    server?.kill()
    await Promise.all(targets.map(target => target.stop()))
    await rm(folder, { recursive: true, force: true })
  })

  /** Empty if it passed, otherwise the last thing that it printed. */
  async function run(name: string, place: readonly string[]): Promise<string> {
    const more = name.startsWith('orca') ? ['-service_config_json', BY_LOAD] : []
    const child = spawn(join(folder, 'client'), ['-test_case', name, ...place, ...more], {
      stdio: ['ignore', 'ignore', 'pipe'],
      timeout: CASE_MS,
    })
    let said = ''
    child.stderr.setEncoding('utf8').on('data', text => {
      said = `${said}${text}`.slice(-1000)
    })
    const code = await new Promise(resolve => child.once('close', resolve))
    return code === 0 ? '' : (said.trim().split('\n').at(-1) ?? 'failed')
  }

  test.each(['TLS', 'plain'] as const)('%s at the edge: all cases', { timeout: 1_800_000 }, async way => {
    const failed: string[] = []
    for (const name of CASES) {
      const through = await run(name, places[way])
      if (through !== '') failed.push(`${name}: ${through}; directly: ${(await run(name, places.direct)) || 'passed'}`)
    }
    score(`grpc-go's interop, ${way} at the edge`, `${CASES.length - failed.length} of ${CASES.length}`)
    expect(failed).toEqual([])
  })
})

async function listens(port: number): Promise<void> {
  const tried = () =>
    new Promise<boolean>(resolve => {
      const socket = connectTcp(port, '127.0.0.1', () => resolve(true))
      socket.once('error', () => resolve(false)).once('close', () => {})
      socket.once('connect', () => socket.destroy())
    })
  while (!(await tried())) await new Promise(resolve => setTimeout(resolve, 50))
}
