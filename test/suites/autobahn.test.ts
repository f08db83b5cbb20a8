// @module-tag slow
/** Autobahn's WebSocket cases against an echo, directly and through the tunnel: the verdicts must be the same. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { needs, program } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { runProgram, score } from './program.ts'

/** Compression and its limits take an hour, and are negotiated end to end: the tunnel does not look at them. */
const LEFT_OUT = ['12.*', '13.*']

type Report = Record<string, { readonly behavior: string; readonly behaviorClose: string }>
type Verdicts = Map<string, string>

describe.runIf(needs('wstest'))('Autobahn', () => {
  let folder: string
  let echo: WebSocketServer
  let pair: Pair
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-autobahn-'))
    echo = new WebSocketServer({ host: '127.0.0.1', port: 0 })
    echo.on('connection', ws => {
      ws.on('error', () => {})
      ws.on('message', (data, binary) => ws.send(data, { binary }))
    })
    await once(echo, 'listening')
    pair = await startPair({
      runtime: '127',
      target: `http://127.0.0.1:${(echo.address() as AddressInfo).port}`,
      // So the host `127.0.0.1` has a runtime.
      server: { public: { port: 0 }, domains: ['0.0.1'] },
    })
  })
  afterAll(async () => {
    await pair.stop()
    echo.close()
    await rm(folder, { recursive: true })
  })

  /** Autobahn's verdict on each case, by agent: on the echo's behaviour, and on how it closed. */
  async function judge(cases: readonly string[]): Promise<[direct: Verdicts, tunnel: Verdicts]> {
    const at = (port: number) => `ws://127.0.0.1:${port}`
    const servers = [
      { agent: 'direct', url: at((echo.address() as AddressInfo).port) },
      { agent: 'tunnel', url: at(pair.server.publicAddress!.port) },
    ]
    const spec = { outdir: join(folder, 'report'), servers, cases, 'exclude-cases': LEFT_OUT }
    await writeFile(join(folder, 'spec.json'), JSON.stringify(spec))
    await runProgram(program('wstest'), ['-m', 'fuzzingclient', '-s', join(folder, 'spec.json')], 1_100_000)
    const report = JSON.parse(await readFile(join(folder, 'report/index.json'), 'utf8')) as Record<string, Report>
    const verdicts = (agent: string): Verdicts =>
      new Map(Object.entries(report[agent] ?? {}).map(([name, one]) => [name, `${one.behavior}, ${one.behaviorClose}`]))
    return [verdicts('direct'), verdicts('tunnel')]
  }

  const differing = ([direct, tunnel]: [Verdicts, Verdicts]) =>
    [...direct].flatMap(([name, verdict]) => (tunnel.get(name) === verdict ? [] : [name]))

  test('the same verdicts through the tunnel as directly', { timeout: 1_200_000 }, async () => {
    const first = await judge(['*'])
    const [direct] = first
    expect(direct.size).toBeGreaterThan(200)
    // Some wait a second for a close, which a busy machine may miss: those are judged once more, alone.
    const again = differing(first)
    const different = again.length === 0 ? [] : differing(await judge(again))
    score('Autobahn', `${direct.size} cases, ${direct.size - different.length} with the same verdict as direct`)
    expect(different).toEqual([])
  })
})
