/** h2spec, strict, against the TLS edge, and against bare `node:http2` in the same run. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createSecureServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { needs, program } from '../support/needs.ts'
import { runProgram, score } from './program.ts'
import { type SuiteTarget, startTarget } from './target.ts'

/**
 * What may fail at our edge though it passes at a bare server in the same run: each of these is a race between an
 * answer and the frame behind it, which one process more or less decides.
 */
const RACES = /^http2\/5\.1: closed: Sends a (DATA|HEADERS|CONTINUATION) frame/

describe.runIf(needs('h2spec'))('h2spec', () => {
  let folder: string
  let target: SuiteTarget
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-h2spec-'))
    target = await startTarget()
  })
  afterAll(async () => {
    await target.stop()
    await rm(folder, { recursive: true })
  })

  async function failures(name: string, port: number): Promise<{ failed: string[]; cases: number }> {
    const report = join(folder, `${name}.xml`)
    const args = ['--strict', '-t', '-k', '-h', '127.0.0.1', '-p', String(port), '-o', '1', '-j', report]
    await runProgram(program('h2spec'), args, 120_000)
    const cases = [...(await readFile(report, 'utf8')).matchAll(/<testcase ([^>]*?)(\/>|>([\s\S]*?)<\/testcase>)/g)]
    const failed = cases
      .filter(([, , , inner]) => /<(failure|error)/.test(inner ?? ''))
      .map(([, head]) => nameOf(head!))
    return { failed, cases: cases.length }
  }

  test('the edge does no worse than bare node:http2', async () => {
    const { cert, key } = target.secrets.server
    const bare = createSecureServer({ cert, key }, (request, response) => {
      request.resume()
      response.end('x'.repeat(1000))
    })
    bare.on('sessionError', () => {})
    bare.listen(0, '127.0.0.1')
    await once(bare, 'listening')
    const [ours, theirs] = await Promise.all([
      failures('edge', target.edgePort),
      failures('bare', (bare.address() as AddressInfo).port),
    ])
    bare.close()
    const passed = ({ failed, cases }: typeof ours) => `${cases - failed.length} of ${cases}`
    score('h2spec --strict', `edge ${passed(ours)}, bare node:http2 ${passed(theirs)}`)
    expect(ours.cases).toBeGreaterThan(140)
    expect(ours.failed.filter(name => !theirs.failed.includes(name) && !RACES.test(name))).toEqual([])
  })
})

function nameOf(head: string): string {
  const attribute = (name: string) => new RegExp(`\\b${name}="([^"]*)"`).exec(head)?.[1] ?? ''
  return `${attribute('package')}: ${attribute('classname')}`
}
