/** Autobahn's WebSocket cases against an echo, direct and through the tunnel: the verdicts have to be the same. */
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

type Verdicts = Record<string, Record<string, { behavior: string; behaviorClose: string }>>

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

  test('the same verdicts through the tunnel as direct', { timeout: 1_200_000 }, async () => {
    const at = (port: number) => `ws://127.0.0.1:${port}`
    const servers = [
      { agent: 'direct', url: at((echo.address() as AddressInfo).port) },
      { agent: 'tunnel', url: at(pair.server.publicAddress!.port) },
    ]
    const spec = { outdir: join(folder, 'report'), servers, cases: ['*'], 'exclude-cases': LEFT_OUT }
    await writeFile(join(folder, 'spec.json'), JSON.stringify(spec))
    await runProgram(program('wstest'), ['-m', 'fuzzingclient', '-s', join(folder, 'spec.json')], 1_100_000)
    const { direct = {}, tunnel = {} } = JSON.parse(
      await readFile(join(folder, 'report/index.json'), 'utf8'),
    ) as Verdicts
    const verdicts = (of: Verdicts[string]) =>
      Object.fromEntries(
        Object.entries(of).map(([name, { behavior, behaviorClose }]) => [name, [behavior, behaviorClose]]),
      )
    score('Autobahn', `${Object.keys(tunnel).length} cases, the same verdicts as direct`)
    expect(Object.keys(direct).length).toBeGreaterThan(200)
    expect(verdicts(tunnel)).toEqual(verdicts(direct))
  })
})
