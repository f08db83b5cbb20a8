/** h2spec, strict, against the edge with TLS and without. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { needs, program } from '../support/needs.ts'
import { runProgram, score } from './program.ts'
import { type SuiteTarget, startTarget } from './target.ts'

/** It expects frames or a closed connection. A port without TLS speaks HTTP/1.1, too, and answers 400. */
const OTHER_PREFACE = 'http2/3.5: Sends invalid connection preface'

describe.runIf(needs('h2spec'))('h2spec', () => {
  let folder: string
  const targets: SuiteTarget[] = []
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-h2spec-'))
  })
  afterAll(async () => {
    await Promise.all(targets.map(target => target.stop()))
    await rm(folder, { recursive: true })
  })

  async function failures(name: string, port: number, options: readonly string[]): Promise<string[]> {
    const report = join(folder, `${name}.xml`)
    const args = ['--strict', ...options, '-h', '127.0.0.1', '-p', String(port), '-o', '1', '-j', report]
    await runProgram(program('h2spec'), args, 120_000)
    const cases = [...(await readFile(report, 'utf8')).matchAll(/<testcase ([^>]*?)(\/>|>([\s\S]*?)<\/testcase>)/g)]
    const failed = cases.filter(([, , , inner]) => /<(failure|error|skipped)/.test(inner ?? ''))
    score(`h2spec --strict, ${name}`, `${cases.length - failed.length} of ${cases.length}`)
    expect(cases.length).toBeGreaterThan(140)
    return failed.map(([, head]) => nameOf(head!))
  }

  test('with TLS: no case fails', async () => {
    const target = await startTarget()
    targets.push(target)
    expect(await failures('TLS', target.edgePort, ['-t', '-k'])).toEqual([])
  })

  test('without TLS: only the one that HTTP/1.1 answers', async () => {
    const target = await startTarget(() => ({ public: { port: 0 } }))
    targets.push(target)
    expect(await failures('plain', target.edgePort, [])).toEqual([OTHER_PREFACE])
  })
})

function nameOf(head: string): string {
  const attribute = (name: string) => new RegExp(`\\b${name}="([^"]*)"`).exec(head)?.[1] ?? ''
  return `${attribute('package')}: ${attribute('classname')}`
}
