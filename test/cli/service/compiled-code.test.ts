/** V8 saves memory in the first quiet minute; our commands put that off. Two processes, one of which does not. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { long } from '../../support/needs.ts'

const FILE = fileURLToPath(new URL('../../../cli/service/compiled-code.ts', import.meta.url))

/** What the collector says of a process that works for a moment and then rests. */
async function collections(first: string): Promise<string> {
  const work = 'let kept = []; for (let i = 0; i < 3e6; i++) kept[i % 1e5] = { i }'
  const args = ['--trace-gc', '--input-type=module', '-e', `${first}; ${work}; setTimeout(() => {}, 50_000)`]
  return (await promisify(execFile)(process.execPath, args)).stdout
}

it.runIf(long)('no collection drops compiled code in a first minute of rest', { timeout: 90_000 }, async () => {
  const keep = `const { keepCompiledCode } = await import(${JSON.stringify(FILE)}); keepCompiledCode()`
  const [kept, usual] = await Promise.all([collections(keep), collections('')])
  expect(usual).toContain('(reduce)')
  expect(kept).not.toContain('(reduce)')
})
