/**
 * The directory's algorithm in random schedules of faults, on a store in memory and a fake clock: the checker of the
 * replicas' model judges every stream. `TEST_SEED` sets the first seed.
 */
import { afterEach, expect, test, vi } from 'vitest'
import { NoWitnesses } from '../../../server/directory/witnesses.ts'
import { type Entry, judge } from '../../replicas/history.ts'
import { long } from '../../support/needs.ts'
import { randomOf } from '../../support/random.ts'
import { firstSeed } from '../../support/seed.ts'
import { type Ground, inMemory, Replica } from './ground.ts'

const SCHEDULES = long ? 1000 : 40
const STEPS = 60
const REPLICAS = ['a', 'b', 'c']
const INSTANCES = ['one', 'two', 'three', 'four']
const HOUR_S = 3600
/** In time of the fake clock. */
const AGREE_MS = 60_000

/** Nobody talks to the others, and each knows that there are some. */
class NobodyVouches extends NoWitnesses {
  override vouchedUntilMs(): number {
    return Number.NEGATIVE_INFINITY
  }
}

class FakeSchedule {
  readonly #random: () => number
  readonly #ground: Ground
  readonly #replicas: Replica[] = []
  readonly #epochs = new Map<string, number>()
  readonly history: Entry[] = []
  readonly steps: string[] = []
  #isAway = false

  constructor(ground: Ground, seed: number) {
    this.#ground = ground
    this.#random = randomOf(seed)
    // The algorithm's own pauses are part of the schedule.
    vi.spyOn(Math, 'random').mockImplementation(randomOf(~seed))
  }

  /** Returns whether all agreed once the faults were over. */
  async run(): Promise<boolean> {
    await this.#ground.age()
    for (const name of REPLICAS) {
      const record = (deed: Entry['deed'], runtime: string, instance: string, epoch: number) =>
        void this.history.push({ atMs: performance.now(), replica: name, deed, runtime, instance, epoch })
      const replica = new Replica(this.#ground, name, { record, witnesses: new NobodyVouches(name) })
      this.#replicas.push(replica)
      await replica.directory.open()
    }
    for (let i = 0; i < STEPS; i++) {
      await this.#step(this.#pick(this.#replicas))
      await this.#pass(this.#random() * 0.3 * this.#ground.leaseMs)
    }
    return this.#agree()
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)]!
  }

  /** Time passes, with callers all the while. */
  async #pass(ms: number): Promise<void> {
    for (const untilMs = performance.now() + ms; performance.now() < untilMs; ) {
      await this.#ground.pass()
      for (const replica of this.#replicas) this.#route(replica)
    }
  }

  #route(replica: Replica): void {
    const { state } = replica
    if (state === undefined || !replica.has(state.active)) return
    const { active: instance, epoch, runtime } = state
    this.#epochs.set(instance, Math.max(this.#epochs.get(instance) ?? 0, state.instances.get(instance)?.epoch ?? 0))
    const name = replica.directory.replica
    this.history.push({ atMs: performance.now(), replica: name, deed: 'routed', runtime, instance, epoch })
  }

  async #step(replica: Replica): Promise<void> {
    if (this.#isAway && this.#random() < 0.3) await this.#comeBack()
    const { path, directory } = replica
    const dice = this.#random()
    const instance = this.#pick(INSTANCES)
    const say = (what: string) => void this.steps.push(`${directory.replica}: ${what}`)
    if (dice < 0.3) {
      say(`${instance} joins`)
      replica.join(instance, this.#epochs.get(instance)).catch(() => {})
    } else if (dice < 0.5) {
      say(`${instance} leaves`)
      if (replica.has(instance)) replica.leave(instance)
    } else if (dice < 0.8) {
      const fault = this.#pick(['silent', 'silent', 'losesAnswers', 'repeats', 'reorders'] as const)
      path[fault] = !path[fault]
      say(`${fault} ${path[fault]}`)
    } else if (dice < 0.88) {
      say('is cut')
      path.cut()
    } else if (dice < 0.93) await this.#ground.setClock(this.#pick([-HOUR_S, -1, 0, HOUR_S]))
    else if (dice < 0.97) this.#goAway()
    else await this.#forget()
  }

  #goAway(): void {
    this.steps.push('the store is away for all')
    this.#isAway = true
    for (const { path } of this.#replicas) {
      path.absent = true
      path.cut()
    }
  }

  /** With what it knew, for longer than each takes to try again: a shorter return would make it new, and young. */
  async #comeBack(): Promise<void> {
    this.steps.push('the store is back')
    this.#isAway = false
    for (const { path } of this.#replicas) path.absent = false
    await this.#pass(0.6 * this.#ground.leaseMs)
  }

  /**
   * While nobody is cut off: a replica that is cut off could not write back what is forgotten (see docs/scaling.md).
   */
  async #forget(): Promise<void> {
    await this.#heal()
    await this.#pass(3 * this.#ground.leaseMs)
    if (this.#random() < 0.5) {
      this.steps.push('the store forgets everything')
      await this.#ground.forget()
    } else {
      const restore = await this.#ground.keep()
      for (const replica of this.#replicas) replica.join(this.#pick(INSTANCES)).catch(() => {})
      await this.#pass(0.1 * this.#ground.leaseMs)
      this.steps.push('the store loses its last changes')
      for (const { path } of this.#replicas) path.cut()
      await restore()
    }
    await this.#pass(3 * this.#ground.leaseMs)
  }

  async #heal(): Promise<void> {
    if (this.#isAway) await this.#comeBack()
    for (const { path } of this.#replicas) path.silent = path.losesAnswers = path.repeats = path.reorders = false
  }

  async #agree(): Promise<boolean> {
    this.steps.push('all is well')
    await this.#heal()
    for (const replica of this.#replicas) replica.join('last').catch(() => {})
    const isWell = () => {
      const [state] = this.#replicas.map(each => each.state)
      const isServed = this.#replicas.some(each => each.has(state?.active ?? ''))
      return isServed && new Set(this.#replicas.map(({ active }) => active)).size === 1
    }
    for (const untilMs = performance.now() + AGREE_MS; !isWell(); ) {
      if (performance.now() > untilMs) return false
      await this.#pass(10)
    }
    return true
  }

  async close(): Promise<void> {
    for (const { path } of this.#replicas) path.cut()
    await Promise.all(this.#replicas.map(({ directory }) => directory.close()))
  }
}

let ground: Ground
afterEach(() => ground.stop())

test('no schedule of faults lets a stream open on an epoch that is over', { timeout: 600_000 }, async () => {
  const first = firstSeed()
  const wrong: string[] = []
  let routed = 0
  for (let seed = first; seed < first + SCHEDULES && wrong.length === 0; seed++) {
    ground = await inMemory()
    const schedule = new FakeSchedule(ground, seed)
    const agreed = await schedule.run()
    const { history, steps } = schedule
    routed += history.filter(({ deed }) => deed === 'routed').length
    const said = judge(history, ground.leaseMs)
    if (!agreed) said.push('the replicas did not come to agree')
    if (said.length > 0) wrong.push(`TEST_SEED=${seed}: ${said[0]}\n  ${steps.join('\n  ')}`)
    await schedule.close()
    await ground.stop()
  }
  expect(wrong).toEqual([])
  expect(routed).toBeGreaterThan(SCHEDULES)
})
