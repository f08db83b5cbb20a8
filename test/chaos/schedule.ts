/** A random schedule of faults on one deployment with all its traffic, and the invariants that must hold at the end. */
import { setTimeout as wait } from 'node:timers/promises'
import { slowness } from '../support/busy.ts'
import { Deployment } from './deployment/deployment.ts'
import { type Holdings, holdingsOf, isReady } from './holdings.ts'
import { type FaultKind, KINDS } from './kinds.ts'
import type { Random } from './random.ts'
import { never } from './rows.ts'
import { unlessStopped } from './stop.ts'
import { type Account, Ledger } from './traffic/ledger.ts'
import { Traffic } from './traffic/traffic.ts'
import { lasting, quickPings } from './trial.ts'

export interface ScheduleOptions {
  readonly minutes: number
  readonly random: Random
  readonly say: (line: string) => void
  readonly stop: AbortSignal
}

/** What one kind of fault did, each time together. */
export interface Tally {
  readonly name: string
  readonly planned: boolean
  turns: number
  requests: number
  lost: number
  cut: number
  outlived: number
  longestGapMs: number
}

export interface ScheduleResult {
  readonly tallies: readonly Tally[]
  readonly total: Account
  /** What must not happen, each in words. Empty if everything held. */
  readonly problems: readonly string[]
}

const CALM = 'none'
const GRACE_S = 8
const DOWNLOAD_BYTES = 50_000_000
const WARM_UP_MS = 8000
/** By then, idle connections of nginx and of the pools are closed. */
const QUIET_MS = 7000
const SETTLE_MS = 30_000
/** How long a client remembers the ids of webhooks. It forgets them with the next webhook after that. */
const FORGET_MS = 61_000
const TRICKLE_MS = 3000
const READY_MS = 30_000
const LOOK_MS = 100
/** Growth below this is ignored where the baseline is close to zero. */
const SLACK: Holdings = { liveBytes: 0, handles: 2, sockets: 2, entries: 20, streams: 0, bufferedBytes: 0 }
const TOLERANCE = 1.1

export async function runSchedule(options: ScheduleOptions): Promise<ScheduleResult> {
  const pace = slowness()
  const graceS = Math.ceil(pace * GRACE_S)
  const ledger = new Ledger('all', graceS * 1000)
  const deployment = await Deployment.start(
    { servers: 2, roundTripMs: 0, graceS, pace, inspect: true, ...quickPings(pace) },
    ledger,
  )
  const schedule = new Schedule(deployment, ledger, options)
  try {
    return await unlessStopped(schedule.run(), options.stop)
  } finally {
    await deployment.stop()
  }
}

class Schedule {
  readonly #deployment: Deployment
  readonly #ledger: Ledger
  readonly #options: ScheduleOptions
  readonly #tallies = new Map<string, Tally>()
  readonly #problems: string[] = []

  constructor(deployment: Deployment, ledger: Ledger, options: ScheduleOptions) {
    this.#deployment = deployment
    this.#ledger = ledger
    this.#options = options
  }

  async run(): Promise<ScheduleResult> {
    const { say, minutes, stop } = this.#options
    const baseline = await this.#baseline()
    say('the baseline stands; faults begin')
    const traffic = this.#traffic()
    const endMs = performance.now() + minutes * 60_000
    while (performance.now() < endMs && !stop.aborted) {
      await this.#calm()
      await this.#fault(this.#options.random.pick(KINDS))
    }
    await traffic.stop()
    say('the faults are over; what is held should go back to the baseline')
    await this.#settle(baseline)
    const { total } = this.#ledger
    return { tallies: [...this.#tallies.values()], total, problems: [...never(total), ...this.#problems] }
  }

  #traffic(): Traffic {
    const { upstreams } = this.#deployment
    return new Traffic({
      upstreams,
      placeOf: runtime => this.#deployment.placeOf(runtime),
      ledger: this.#ledger,
      requestsPerSecond: 200,
      callersPerRuntime: 30,
      ...lasting(GRACE_S, DOWNLOAD_BYTES),
    })
  }

  /** Nothing may be lost between the faults either. */
  async #calm(): Promise<void> {
    const account = this.#ledger.account(CALM)
    await wait(this.#options.random.between(500, 2000))
    this.#tally({ name: CALM, planned: true }, account)
  }

  async #fault(kind: FaultKind): Promise<void> {
    const { random, say } = this.#options
    const account = this.#ledger.account(kind.name)
    const startedMs = performance.now()
    await kind
      .fault(this.#deployment, random)
      .catch((error: Error) => this.#problems.push(`${kind.name}: ${error.message}`))
    const overMs = performance.now()
    await this.#ready(kind.name)
    await this.#ledger.settled()
    this.#tally(kind, account)
    const { lost, cut, outlived } = account.counts
    const took = `${((overMs - startedMs) / 1000).toFixed(1)} s`
    say(`${kind.name}: ${took}, ${account.requests} requests, ${lost} lost, ${cut} cut, ${outlived} outlived`)
  }

  #tally({ name, planned, lossless = planned }: Omit<FaultKind, 'fault'>, account: Account): void {
    const { lost, cut, outlived, refused } = account.counts
    const tally = this.#tallies.get(name) ?? {
      ...{ name, planned, turns: 0, requests: 0, lost: 0, cut: 0, outlived: 0, longestGapMs: 0 },
    }
    this.#tallies.set(name, tally)
    tally.turns++
    tally.requests += account.requests
    tally.lost += lost + refused
    tally.cut += cut
    tally.outlived += outlived
    tally.longestGapMs = Math.max(tally.longestGapMs, account.longestGapMs)
    if (!lossless || lost + refused + cut === 0) return
    for (const [reason, count] of account.reasons) {
      if (!reason.includes('outlived')) this.#problems.push(`${name}: ${count} of ${reason}`)
    }
  }

  /** Every component is ready again within 30 s, at the usual pace. */
  async #ready(after: string): Promise<void> {
    const readyMs = READY_MS * this.#deployment.options.pace
    const endMs = performance.now() + readyMs
    for (;;) {
      const { running } = this.#deployment.processes
      const states = await Promise.all([...running.keys()].map(isReady))
      if (states.every(state => state)) return
      if (performance.now() > endMs) {
        const parts = [...running.values()].filter((_, i) => !states[i])
        this.#problems.push(`${after}: ${parts.join(', ')} not ready within ${Math.round(readyMs / 1000)} s`)
        return
      }
      await wait(LOOK_MS)
    }
  }

  /** What each part holds after some traffic, once it is idle. */
  async #baseline(): Promise<Map<string, Holdings>> {
    const traffic = this.#traffic()
    await wait(WARM_UP_MS)
    await traffic.stop()
    await wait(QUIET_MS)
    return this.#holdings()
  }

  /** What the processes of each part hold together, since sessions may have moved from one to another. */
  async #holdings(): Promise<Map<string, Holdings>> {
    const { processes, files } = this.#deployment
    const parts = new Map<string, Holdings>()
    for (const [child, part] of processes.running) {
      const own = await holdingsOf(child, files.at('admin.token'))
      const other = parts.get(part) ?? own
      parts.set(
        part,
        mapHoldings(own, (name, value) => Math.max(value, other[name])),
      )
    }
    return parts
  }

  async #settle(baseline: Map<string, Holdings>): Promise<void> {
    await wait(FORGET_MS)
    const trickle = this.#traffic()
    await wait(TRICKLE_MS)
    await trickle.stop()
    const endMs = performance.now() + SETTLE_MS
    for (;;) {
      await wait(QUIET_MS)
      const excess = excessOf(await this.#holdings(), baseline)
      if (excess.length === 0) return
      if (performance.now() > endMs) {
        this.#problems.push(...excess)
        return
      }
    }
  }
}

function excessOf(now: Map<string, Holdings>, baseline: Map<string, Holdings>): string[] {
  const problems: string[] = []
  for (const [part, held] of now) {
    const before = baseline.get(part)
    if (before === undefined) continue
    mapHoldings(held, (name, value) => {
      if (value > before[name] * TOLERANCE + SLACK[name]) {
        problems.push(`${part}: ${value} ${name}, ${before[name]} before the faults`)
      }
      return value
    })
  }
  return problems
}

function mapHoldings(held: Holdings, map: (name: keyof Holdings, value: number) => number): Holdings {
  const entries = Object.entries(held) as Array<[keyof Holdings, number]>
  return Object.fromEntries(entries.map(([name, value]) => [name, map(name, value)])) as unknown as Holdings
}
