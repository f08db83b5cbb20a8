/**
 * B2: many exchanges of many kinds at once, cut, drained, replaced; then everybody goes, and nothing is left: every counter
 * is 0. What a seed plays follows from it alone; when things meet each other does not, so a seed that fails may have to be
 * played again a few times.
 */
import { Random } from '../fuzz/random.ts'
import { makePlan, type Plan, play } from './callers.ts'
import type { World } from './world.ts'

export interface Walk {
  readonly seed: string
  readonly plans: readonly { readonly atMs: number; readonly plan: Plan }[]
  readonly event: 'none' | 'sessions lost' | 'drained' | 'client replaced'
  readonly eventMs: number
  /** When everybody who is still there goes. */
  readonly endMs: number
}

export function makeWalk(seed: string, hasFar: boolean): Walk {
  const random = new Random(seed)
  const plans = Array.from({ length: random.between(4, 20) }, () => ({
    atMs: random.int(40),
    plan: makePlan(random, hasFar),
  }))
  const event = random.pick<Walk['event']>([
    'none',
    'none',
    'none',
    'sessions lost',
    'sessions lost',
    'drained',
    'client replaced',
  ])
  return { seed, plans, event, eventMs: random.int(80), endMs: random.between(80, 250) }
}

/** Plays it; resolves to what is left, which is nothing unless something is wrong. */
export async function walk(
  world: World,
  { plans, event, eventMs, endMs }: Walk,
  restMs = 15_000,
): Promise<Record<string, number>> {
  const ends: (() => void)[] = []
  const callers = plans.map(async ({ atMs, plan }) => {
    await delay(atMs)
    const playing = play(world, plan)
    ends.push(() => playing.end())
    await playing.done
  })
  const happens = delay(eventMs).then(() => {
    if (event === 'sessions lost') world.loseSessions()
    else if (event === 'drained') world.drain()
    else if (event === 'client replaced') return world.replaceClient()
    return undefined
  })
  await Promise.race([Promise.all(callers), delay(endMs)])
  await happens
  await delay(Math.max(0, ...plans.map(({ atMs }) => atMs + 1)))
  for (const end of ends) end()
  // Of a session that was lost the client lets run on, for a while, what must not run twice.
  if (event === 'sessions lost' || event === 'client replaced') world.upstream.release()
  await world.ready()
  return rest(world, restMs)
}

async function rest(world: World, ms: number): Promise<Record<string, number>> {
  const end = performance.now() + ms
  for (;;) {
    const left = world.left()
    if (Object.keys(left).length === 0 || performance.now() > end) return left
    await delay(5)
  }
}

function delay(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}
