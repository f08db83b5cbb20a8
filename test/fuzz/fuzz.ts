/** Runs targets for a time or a number of executions, and stops a target at its first find. */
import { liveBytes } from '../../load-tests/lib/garbage.ts'
import { Broken } from './holds.ts'
import { Random } from './random.ts'
import { failure, shrink } from './shrink.ts'
import type { FuzzTarget } from './target.ts'

export interface FuzzOptions {
  readonly seed: string
  /** For each target: runs for this time ... */
  readonly ms: number
  /** ... or for this many executions. */
  readonly executions?: number | undefined
}

export interface Find {
  readonly target: string
  readonly input: Buffer
  /** The input as it was found. */
  readonly original: Buffer
  readonly error: unknown
}

export interface TargetResult {
  readonly target: string
  readonly executions: number
  readonly ms: number
  /** By how much the live bytes (heap and external) grew. */
  readonly grownBytes: number
  readonly find: Find | undefined
}

/** Live bytes that a target may leave behind, including its own caches. */
const MAX_GROWN_BYTES = 16 * 1024 * 1024
/** After this many executions, the memory of compilers and caches is stable. */
const WARM_UP = 200
/** CPU time that no input of a few kilobytes takes, even on the slowest machine. Other processes do not count. */
const MOST_CPU_MS = 5_000

/** Input `n` of a target depends only on the seed, the target's name and `n`. */
export async function fuzz(target: FuzzTarget, options: FuzzOptions): Promise<TargetResult> {
  const startedAt = performance.now()
  let executions = 0
  let warmBytes = 0
  let find: Find | undefined
  while (find === undefined && executions < (options.executions ?? Number.POSITIVE_INFINITY)) {
    if (performance.now() - startedAt >= options.ms) break
    if (executions === WARM_UP) warmBytes = await liveBytes()
    find = await once(target, target.generate(new Random(`${options.seed}/${target.name}/${executions}`)))
    executions++
  }
  const grownBytes = executions > WARM_UP ? (await liveBytes()) - warmBytes : 0
  await target.stop?.()
  if (find === undefined && grownBytes > MAX_GROWN_BYTES) find = leak(target, grownBytes)
  return { target: target.name, executions, ms: performance.now() - startedAt, grownBytes, find }
}

async function once(target: FuzzTarget, input: Buffer): Promise<Find | undefined> {
  const clock = target.mostMs === undefined ? cpuMs : () => performance.now()
  const startedAt = clock()
  const error = await failure(target, input)
  if (error !== undefined) return { target: target.name, input: await shrink(target, input), original: input, error }
  const ms = clock() - startedAt
  if (ms < (target.mostMs ?? MOST_CPU_MS)) return undefined
  return { target: target.name, input, original: input, error: new Broken(`one input took ${Math.round(ms)} ms`) }
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

function leak(target: FuzzTarget, bytes: number): Find {
  const error = new Broken(`live bytes grew by ${bytes}`)
  return { target: target.name, input: Buffer.alloc(0), original: Buffer.alloc(0), error }
}
