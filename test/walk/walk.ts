/**
 * B2: many exchanges of many kinds at once, cut, drained and replaced. Then everybody leaves, and nothing is left: every counter is
 * 0. A seed determines what is played, but not the timing of events among each other. So a seed that fails may have to be
 * repeated a few times.
 */
import { Random } from '../fuzz/random.ts'
import { canary, greedyPlan, hostilePlan, makePlan, type Plan, type Playing, play } from './callers.ts'
import { flood } from './flood.ts'
import type { World } from './world.ts'

export interface Walk {
  readonly seed: string
  readonly plans: readonly { readonly atMs: number; readonly plan: Plan }[]
  readonly event: 'none' | 'sessions lost' | 'drained' | 'client replaced' | 'hostile client lost' | 'a flood of pings'
  readonly eventMs: number
  /** When everybody who is still there leaves. */
  readonly endMs: number
}

export function makeWalk(seed: string, hasFar: boolean): Walk {
  const random = new Random(seed)
  const theme = random.pick(['mixed', 'mixed', 'mixed', 'greedy', 'greedy, and endless', hasFar ? 'hostile' : 'mixed'])
  const greedy = theme.startsWith('greedy')
  const planOf = () => {
    if (greedy) return greedyPlan(random, theme !== 'greedy')
    return theme === 'hostile' ? hostilePlan(random) : makePlan(random, hasFar)
  }
  const count = greedy ? random.between(8, 12) : random.between(4, 20)
  const plans = Array.from({ length: count }, () => ({ atMs: random.int(40), plan: planOf() }))
  const events: Walk['event'][] = [
    'none',
    'none',
    'none',
    'sessions lost',
    'sessions lost',
    'drained',
    'client replaced',
    'hostile client lost',
  ]
  // This takes megabytes, and a second.
  const event = random.oneIn(20) ? 'a flood of pings' : random.pick(events)
  return {
    seed,
    plans,
    event,
    eventMs: random.int(80),
    endMs: greedy ? random.between(500, 700) : random.between(80, 250),
  }
}

/** Generous, so that a busy machine makes nothing fail. */
const REST_MS = 30_000
const COUNTED_MS = 10_000

/** Plays the walk. Resolves to what is left, which is nothing unless something is wrong. */
export async function walk(world: World, made: Walk, restMs = REST_MS): Promise<Record<string, number>> {
  try {
    return await playAll(world, made, restMs)
  } catch (error) {
    return { ...world.left(), [String(error)]: 1 }
  }
}

/** Which walk it was, and what it left behind. */
export function tellLeft(world: World, { seed, event }: Walk, left: Record<string, number>): string {
  const told = `seed ${seed} (${event}) leaves ${JSON.stringify(left)}`
  return [told, ...world.said.errors, ...world.upstream.open()].join('\n')
}

async function playAll(
  world: World,
  { plans, event, eventMs, endMs }: Walk,
  restMs: number,
): Promise<Record<string, number>> {
  const begun: Playing[] = []
  Object.assign(world.said, { errors: [], floods: 0 })
  const callers = plans.map(async ({ atMs, plan }) => {
    await delay(atMs)
    const playing = play(world, plan)
    begun.push(playing)
    await playing.done
  })
  const happens = delay(eventMs).then(() => {
    if (event === 'sessions lost') world.loseSessions()
    else if (event === 'drained') world.drain()
    else if (event === 'hostile client lost') world.loseHostile()
    else if (event === 'client replaced') return world.replaceClient()
    else if (event === 'a flood of pings') return flood(world)
    return undefined
  })
  const entries = world.far === undefined ? (['direct'] as const) : (['direct', 'hop'] as const)
  const canaries = [1, 2, 3].flatMap(part =>
    entries.map(async entry => {
      await delay((endMs * part) / 4)
      return canary(world, entry)
    }),
  )
  await Promise.race([Promise.all(callers), delay(endMs)])
  await happens
  await delay(Math.max(0, ...plans.map(({ atMs }) => atMs + 1)))
  const isUndisturbed = event === 'none' || event === 'a flood of pings'
  const cut = (await Promise.all(canaries)).filter(what => what !== undefined)
  const uncounted = isUndisturbed ? await uncountedBytes(world, begun) : 0
  for (const playing of begun) playing.end()
  // When a session is lost, the client lets exchanges that must not run twice continue for a while.
  if (event !== 'none') world.upstream.release()
  await world.ready()
  const left = await rest(world, restMs)
  if (isUndisturbed && cut.length > 0) left[`answers of others that were cut (${cut.join('; ')})`] = cut.length
  if (uncounted > 0) left['bytes that wait and are not counted'] = uncounted
  return left
}

/** What waits for callers is counted as soon as it has arrived. */
async function uncountedBytes(world: World, begun: readonly Playing[]): Promise<number> {
  const end = performance.now() + COUNTED_MS
  for (;;) {
    let held = 0
    for (const { heldBytes } of begun) held += heldBytes?.() ?? 0
    const uncounted = held - world.near.stats().bufferedBytes
    if (uncounted <= 0 || performance.now() > end) return Math.max(0, uncounted)
    await delay(5)
  }
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
