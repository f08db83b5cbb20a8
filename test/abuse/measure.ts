/** Runs an attack in rounds, and measures what the well-behaved client saw and what the server held. */
import type { Attack } from './attack.ts'
import type { Measured, VictimState } from './messages.ts'
import type { World } from './world.ts'

export interface Result {
  readonly name: string
  readonly quiet: Measured
  readonly attacked: Measured
  readonly peakBytes: number
  readonly before: VictimState
  readonly after: VictimState
}

/** How much may remain after an attack, as a share of what was there before. */
export const LEFT_BEHIND = 0.1
/** Handles and sessions are few, so a share of them means little. */
const FEW = 2
const SETTLED_MS = 20_000
const QUIET_MS = 400

export async function measure(world: World, attack: Attack, share: number, rounds: number): Promise<Result> {
  const release = await attack.prepare?.(world)
  // Fills caches and compiles code before anything is compared.
  const quick = attack.slow === true && share < 1
  if (!quick) await attack.round(world, share / 4)
  const first = await settled(world, undefined)
  const quiet = await world.witness(() => new Promise(resolve => setTimeout(resolve, QUIET_MS)))
  const before = await settled(world, first)
  world.resetPeak()
  const attacked = await world.witness(async () => {
    for (let round = 0; round < (quick ? 1 : rounds); round++) await attack.round(world, share)
  })
  const peakBytes = world.residentBytes.peak
  const after = await settled(world, before)
  await release?.()
  return { name: attack.name, quiet, attacked, peakBytes, before, after }
}

/** The server's state once everything from outside is gone, or after a while in any case. */
async function settled(world: World, wanted: VictimState | undefined): Promise<VictimState> {
  const deadline = performance.now() + SETTLED_MS
  for (;;) {
    const state = await world.state()
    const { streams, exchanges, handshakesWaiting, bufferedBytes, replayBytes } = state.stats
    const idle = streams + exchanges + handshakesWaiting + bufferedBytes + replayBytes === 0
    if (idle && (wanted === undefined || excess(wanted, state).length === 0)) return state
    if (performance.now() > deadline) return state
  }
}

/** What has grown, in words. Empty if nothing significant is left. */
export function excess(before: VictimState, after: VictimState): string[] {
  const found: string[] = []
  const check = (what: string, was: number, is: number, few = 0) => {
    if (is > was * (1 + LEFT_BEHIND) + few) found.push(`${what}: ${was} before, ${is} after`)
  }
  check('live bytes', before.liveBytes, after.liveBytes)
  for (const [kind, count] of Object.entries(after.handles)) check(kind, before.handles[kind] ?? 0, count, FEW)
  for (const name of ['sessions', 'runtimes', 'streams', 'exchanges', 'bufferedBytes', 'replayBytes'] as const) {
    check(name, before.stats[name], after.stats[name])
  }
  return found
}

export function measureTable(results: readonly Result[]): string {
  const mib = (bytes: number) => (bytes / 1024 / 1024).toFixed(1)
  const rows = results.map(({ name, quiet, attacked, peakBytes, before, after }) => {
    const times = `${quiet.p99Ms.toFixed(1)} | ${attacked.p99Ms.toFixed(1)}`
    const counts = `${attacked.requests} | ${attacked.lost}`
    return `| ${name} | ${times} | ${counts} | ${mib(peakBytes)} | ${mib(before.liveBytes)} | ${mib(after.liveBytes)} |`
  })
  const head =
    '| attack | p99 without, ms | p99 with, ms | requests | lost | RSS peak, MiB | live before, MiB | live after, MiB |'
  return [head, '|---|---|---|---|---|---|---|---|', ...rows].join('\n')
}
