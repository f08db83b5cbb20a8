/** The fuzzer itself, and its run: 60 s, 5 s in a short run, or as long as `TEST_FUZZ_SECONDS` says. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { short } from '../support/needs.ts'
import { firstSeed } from '../support/seed.ts'
import { fuzz } from './fuzz.ts'
import { holds } from './holds.ts'
import { Random } from './random.ts'
import { readRegressions, writeRegression } from './regressions.ts'
import type { FuzzTarget } from './target.ts'
import { TARGETS } from './targets/index.ts'

const SECONDS = Number(process.env.TEST_FUZZ_SECONDS ?? (short ? 5 : 60))

const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

/** Fails for inputs that contain an X, in a later turn if `late`. */
function brittle(late: boolean): FuzzTarget {
  const check = (input: Buffer) => holds(!input.includes('X'), 'there is no X')
  return {
    name: 'brittle',
    generate: random => random.bytes(random.between(0, 60)),
    execute: input => {
      if (!late) return check(input)
      return new Promise(resolve => {
        setImmediate(resolve)
        process.nextTick(check, input)
      })
    },
  }
}

describe('the fuzzer', () => {
  it.each([[false], [true]])('finds what breaks, and shrinks it (thrown in a later turn: %s)', async late => {
    const { find } = await fuzz(brittle(late), { seed: 'a', ms: 60_000 })
    expect(find?.original.length).toBeGreaterThan(1)
    expect(find?.input.toString()).toBe('X')
    expect(String(find?.error)).toContain('there is no X')
  })

  it('finds a leak', async () => {
    const kept: Buffer[] = []
    const leaking: FuzzTarget = {
      name: 'leaking',
      generate: () => Buffer.alloc(0),
      execute: () => void kept.push(Buffer.alloc(128 * 1024)),
    }
    const { find } = await fuzz(leaking, { seed: 'a', ms: 60_000, executions: 500 })
    expect(String(find?.error)).toContain('live bytes grew')
  })

  it('finds an input that takes long to compute, but none that the machine delayed', async () => {
    const idle: FuzzTarget = { name: 'idle', generate: () => Buffer.alloc(1), execute: () => {} }
    let ms = 0
    const later = () => {
      ms += 6_000
      return ms
    }
    vi.spyOn(performance, 'now').mockImplementation(later)
    const waited = await fuzz(idle, { seed: 'a', ms: 60_000, executions: 2 })
    expect(waited).toMatchObject({ executions: 2, find: undefined })
    vi.spyOn(process, 'threadCpuUsage').mockImplementation(() => ({ user: later() * 1000, system: 0 }))
    const computed = await fuzz(idle, { seed: 'a', ms: 60_000, executions: 2 })
    expect(String(computed.find?.error)).toContain('one input took 6000 ms')
  })

  it('makes the same inputs from the same seed, and different ones from another', () => {
    const inputs = (seed: string) =>
      TARGETS.map(target => target.generate(new Random(`${seed}/${target.name}/7`)).toString('hex'))
    expect(inputs('a')).toEqual(inputs('a'))
    expect(inputs('a')).not.toEqual(inputs('b'))
  })

  it('keeps each find as a file, which is replayed', () => {
    const folder = mkdtempSync(join(tmpdir(), 'sallyport-fuzz-'))
    folders.push(folder)
    const input = new Random('x').bytes(200)
    const file = writeRegression('routes', input, folder)
    expect(readRegressions(folder)).toEqual([{ file, target: 'routes', input }])
  })

  it('has a target for each regression input', () => {
    const names = TARGETS.map(target => target.name)
    for (const { target, input } of readRegressions()) {
      expect(names).toContain(target)
      expect(input.length).toBeGreaterThan(0)
    }
  })
})

describe('npm run fuzz', () => {
  it(
    `${SECONDS} s: no finds`,
    async () => {
      const { code, text } = await run(
        '--seconds',
        String(SECONDS),
        '--seed',
        firstSeed().toString(16).padStart(8, '0'),
      )
      console.log(text)
      expect(text).toMatch(/^seed [0-9a-f]{8}$/m)
      expect(code, text).toBe(0)
      for (const { name } of TARGETS) expect(text).toMatch(new RegExp(`^${name} +[1-9]`, 'm'))
    },
    SECONDS * 1000 + 120_000,
  )

  it('lists the targets', async () => {
    const { code, text } = await run('--only', 'nothing')
    expect(code).toBe(2)
    expect(text).toContain('http1-edge')
  })
})

async function run(...args: string[]): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'run.ts'), ...args])
  let text = ''
  child.stdout.on('data', chunk => (text += chunk))
  child.stderr.on('data', chunk => (text += chunk))
  await once(child, 'close')
  return { code: child.exitCode, text }
}
