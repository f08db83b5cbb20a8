// @module-tag slow
/** Connect's conformance suite: its client and server through the pair, compared with the same two directly. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'
import { runProgram, score } from './program.ts'

const FOLDER = join(import.meta.dirname, 'connect')
const DEADLINE_MS = 600_000

/** Each with and without TLS at the edge, with all kinds of calls, codecs and compressions that both ends know. */
const WAYS = {
  'HTTP/1.1': { version: 'HTTP_VERSION_1', protocols: ['PROTOCOL_CONNECT', 'PROTOCOL_GRPC_WEB'] },
  'HTTP/2, h2c behind': {
    version: 'HTTP_VERSION_2',
    protocols: ['PROTOCOL_CONNECT', 'PROTOCOL_GRPC', 'PROTOCOL_GRPC_WEB'],
  },
} as const

describe.runIf(needs('new-go'))("Connect's conformance suite", () => {
  let programs: string
  beforeAll(async () => {
    programs = await mkdtemp(join(tmpdir(), 'sallyport-connect-'))
    await goBuild(FOLDER, `${programs}/`, 'tool')
  }, GO_BUILD_MS)
  afterAll(() => rm(programs, { recursive: true, force: true }))

  async function run(way: keyof typeof WAYS, server: readonly string[]): Promise<{ cases: number; failed: string[] }> {
    const { version, protocols } = WAYS[way]
    const features = { versions: [version], protocols, supportsTls: true, supportsH2c: version === 'HTTP_VERSION_2' }
    const config = join(programs, `${version}.yaml`)
    // JSON is YAML, too.
    await writeFile(config, JSON.stringify({ features }))
    const args = ['--mode', 'server', '--conf', config, '--max-servers', '1', '--', ...server]
    const { out } = await runProgram(join(programs, 'connectconformance'), args, DEADLINE_MS)
    const failed = [...out.matchAll(/^FAILED: (.+?):?$/gm)].map(([, name]) => name!)
    return { cases: Number(/^Total cases: (\d+)$/m.exec(out)?.[1]), failed }
  }

  test.each(Object.keys(WAYS) as (keyof typeof WAYS)[])(
    '%s: all cases as directly',
    { timeout: 2 * DEADLINE_MS },
    async way => {
      const reference = join(programs, 'referenceserver')
      const direct = await run(way, [reference])
      const through = await run(way, [process.execPath, join(FOLDER, 'server.ts'), reference])
      const passed = ({ cases, failed }: typeof direct) => `${cases - failed.length} of ${cases}`
      score(`Connect's conformance, ${way}`, `${passed(through)}, direct ${passed(direct)}`)
      expect(direct.cases).toBeGreaterThan(1000)
      expect(through.cases).toBe(direct.cases)
      expect(through.failed.filter(name => !direct.failed.includes(name))).toEqual([])
    },
  )
})
