import { cpuMs } from '../lib/cpu.ts'
import { fixedWorkUs } from '../lib/fixed-work.ts'
import type { Generators } from '../lib/generator.ts'
import { interleaved, type Measured, type Round, type Rounds } from '../lib/measure.ts'
import type { Mode } from '../lib/mode.ts'
import type { Secrets } from '../lib/secrets.ts'
import type { Section } from '../lib/section.ts'
import type { Setups } from '../setups/index.ts'
import type { Setup } from '../setups/setup.ts'

/** What a scenario works with. */
export interface Bench {
  readonly mode: Mode
  readonly rounds: number
  /** How long one round of a load lasts. */
  readonly roundMs: number
  /** How long the soak lasts. */
  readonly minutes: number
  readonly generators: Generators
  readonly upstreamPort: number
  readonly secrets: Secrets
  readonly setups: Setups
  progress(text: string): void
}

export interface Scenario {
  readonly name: string
  readonly title: string
  /** Kinds of run that include it without naming it. Default: all. */
  readonly modes?: readonly Mode[]
  run(bench: Bench): Promise<Section[]>
}

/** The row that the ratios refer to. */
export const UNIT = 'nginx'

/** Whether its code is compiled while it runs. The others are as fast from the start. */
export const isOnV8 = (key: string): boolean => isOurs(key) || key.startsWith('bare-') || key === 'http-proxy'

const isOurs = (key: string): boolean => /^(tunnel|ingress|sallyport)/.test(key)

/** A row's value in a bar chart. */
export function bars(measured: readonly Measured[], figure: string) {
  return measured
    .filter(row => row.figures[figure] !== undefined && !Number.isNaN(row.figures[figure].median))
    .map(row => ({ label: row.name, value: row.figures[figure]!.median, isOurs: isOurs(row.key) }))
}

/**
 * Runs rounds over setups. `once` returns its figures and how many requests (or MB) the round moved, and `cpu` becomes the CPU time of
 * the setup's processes per request (or MB), in us. `warmUp`: the setups that get a round first that does not count (default: those on V8).
 * `leadIn`: runs before each round, since the setup was idle while others had their turn. A smoke run has neither.
 */
export function measureSetups(
  bench: Bench,
  label: string,
  setups: readonly Setup[],
  once: (setup: Setup, isWarmUp: boolean) => Promise<Round & { units: number }>,
  {
    warmUp = isOnV8,
    leadIn,
  }: { warmUp?: Rounds['warmUp']; leadIn?: (setup: Setup) => Promise<{ wrong: number }> } = {},
): Promise<Measured[]> {
  const isSmoke = bench.mode === 'smoke'
  const progress = (text: string) => bench.progress(`${label}: ${text}`)
  return interleaved(
    setups,
    { rounds: bench.rounds, warmUp: isSmoke ? false : warmUp, progress },
    async (setup, isWarmUp) => {
      const fixedWork = fixedWorkUs()
      const early = isSmoke || isWarmUp ? undefined : await leadIn?.(setup)
      const before = cpuMs(setup.pids)
      let round = await once(setup, isWarmUp)
      for (let more = 0; isSmoke && round.units === 0 && more < MORE_ROUNDS; more++) round = await once(setup, isWarmUp)
      const { figures, wrong, units } = round
      const cpu = ((cpuMs(setup.pids) - before) * 1000) / units
      const more = setup.pids.length === 0 ? { fixedWork } : { fixedWork, cpu }
      return { figures: { ...figures, ...more }, wrong: wrong + (early?.wrong ?? 0) }
    },
  )
}

/** More attempts in a smoke run, whose rounds may be too short for an answer on a busy machine. */
const MORE_ROUNDS = 10

/** How long a warm-up round takes, given that other scenarios have already warmed up the code. */
const WARM_UP_MS = 1_000

export const lengthMs = (bench: Bench, isWarmUp: boolean): number => (isWarmUp ? WARM_UP_MS : bench.roundMs)

/** A remark for figures that the generator may have limited. */
export function limitNote(measured: readonly Measured[]): string {
  const busy = measured.filter(row => (row.figures.generatorCpu?.max ?? 0) >= 0.9).map(row => row.name)
  return busy.length === 0 ? '' : ` The generator was the limit (90 % of a core or more) on: ${busy.join('; ')}.`
}
