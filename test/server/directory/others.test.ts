/**
 * What a replica asks the others about runtimes that it does not know, while the store cannot say. On a store in memory and a fake
 * clock; the other replicas answer without sockets.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { elapsedMs } from '../../../protocol/base/elapsed.ts'
import type { RuntimeState } from '../../../server/directory/directory.ts'
import { QueueFull } from '../../../server/directory/store.ts'
import { NoWitnesses, type WitnessListener } from '../../../server/directory/witnesses.ts'
import { Questions } from '../../../server/questions.ts'
import { type Ground, inMemory, Replica } from './ground.ts'

/** All replicas, by name. */
const mesh = new Map<string, Neighbour>()

/** A replica that hears from all others, unless they are mute. */
class Neighbour extends NoWitnesses {
  readonly #name: string
  /** What it asked the others about. */
  readonly asked: string[] = []
  /** Questions at a time, at most. */
  most = 0
  #open = 0
  listener: WitnessListener | undefined
  vouches = true
  isMute = false
  /** Answers come after this many turns. */
  delay = 1

  constructor(name: string) {
    super(name)
    this.#name = name
    mesh.set(name, this)
  }

  override listen(listener?: WitnessListener): void {
    this.listener = listener
  }

  override vouchedUntilMs(): number {
    return this.vouches ? elapsedMs() + ground.leaseMs : Number.NEGATIVE_INFINITY
  }

  override tell(state?: RuntimeState): void {
    for (const { listener } of this.#others) listener!.heard(state!, this.#name, false)
  }

  get #others(): Neighbour[] {
    return [...mesh.values()].filter(each => each !== this && !each.isMute)
  }

  override get canAsk(): boolean {
    return this.#others.length > 0
  }

  override async askAbout(runtime?: string): Promise<void> {
    this.asked.push(runtime!)
    this.most = Math.max(this.most, ++this.#open)
    await Promise.all(this.#others.map(each => this.#ask(each, runtime!))).finally(() => this.#open--)
  }

  async #ask(other: Neighbour, runtime: string): Promise<void> {
    const state = other.listener!.find(runtime)
    for (let i = 0; i < other.delay; i++) await Promise.resolve()
    if (typeof state === 'object') this.listener!.heard(state, other.#name, true)
  }
}

let ground: Ground
let cold: Replica
let a: Replica
let b: Replica
beforeEach(async () => {
  ground = await inMemory()
  await ground.age()
  const open = async (name: string) => {
    const replica = new Replica(ground, name, { witnesses: new Neighbour(name) })
    await replica.directory.open()
    return replica
  }
  ;[cold, a, b] = [await open('cold'), await open('a'), await open('b')]
})
afterEach(async () => {
  for (const { path } of [cold, a, b]) path.cut()
  await Promise.all([cold, a, b].map(({ directory }) => directory.close()))
  mesh.clear()
  await ground.stop()
})

const witnessOf = ({ directory }: Replica) => mesh.get(directory.replica)!

async function done<Result>(promise: Promise<Result>): Promise<Result> {
  let isDone = false
  void promise.finally(() => {
    isDone = true
  })
  while (!isDone) await ground.pass()
  return promise
}

async function pass(ms: number): Promise<void> {
  for (const untilMs = performance.now() + ms; performance.now() < untilMs; ) await ground.pass()
}

/** The store fails for these, in this way. */
async function fail(how: 'absent' | 'silent' | 'full', which: readonly Replica[] = [cold, a, b]): Promise<void> {
  for (const { path } of which) {
    path[how] = true
    if (how === 'absent') path.cut()
  }
  await pass(0.6 * ground.leaseMs)
}

const said = (state: unknown) => {
  const { active, epoch } = state as RuntimeState
  return `${active} ${epoch}`
}

test.each(['absent', 'silent', 'full'] as const)(
  'a runtime of another replica is found while the store is %s',
  async how => {
    await done(a.join('one'))
    expect(cold.directory.find('demo')).toBe('unknown')
    await fail(how)
    expect(said(await done(cold.directory.refresh('demo')))).toBe('one 1')
    expect(cold.replicasOf('one')).toBe('a')
    await pass(3 * ground.leaseMs)
    expect(cold.active).toBe('one 1')
  },
)

test('it is found although it was known before an earlier outage, and not asked for since', async () => {
  await done(a.join('one'))
  await done(cold.directory.refresh('demo'))
  cold.path.cut()
  await pass(3 * ground.leaseMs)
  expect(cold.directory.state).toBe('connected')
  await fail('absent')
  await pass(2 * ground.leaseMs)
  expect(cold.directory.find('demo')).toBe('unknown')
  expect(said(await done(cold.directory.refresh('demo')))).toBe('one 1')
})

test('it is found if the store falls silent over the question', async () => {
  await done(a.join('one'))
  cold.path.silent = true
  expect(said(await done(cold.directory.refresh('demo')))).toBe('one 1')
})

test('nobody is asked while the store answers, even about a name that nobody serves', async () => {
  await done(a.join('one'))
  await done(cold.directory.refresh('demo'))
  expect(await done(cold.directory.refresh('nobody'))).toBeUndefined()
  expect(cold.active).toBe('one 1')
  expect(witnessOf(cold).asked).toEqual([])
})

test('nobody is asked while the store has no room for the question, since nobody would tell of changes', async () => {
  await done(a.join('one'))
  const open = cold.path.open.bind(cold.path)
  cold.path.open = async (...options) => {
    const link = await open(...options)
    const change = () => Promise.reject(new QueueFull('full'))
    return { change, renew: (...lease) => link.renew(...lease), close: () => link.close() }
  }
  cold.path.cut()
  await pass(ground.leaseMs)
  expect(await done(cold.directory.refresh('demo'))).toBe('unknown')
  expect([cold.directory.state, witnessOf(cold).asked]).toEqual(['connected', []])
})

test.each([
  ['the one that knows it', 1, 9],
  ['the other one', 9, 1],
])('the latest epoch counts, if %s answers first', async (_who, first, last) => {
  await done(a.join('one'))
  await fail('silent', [a])
  // It does not hear of the second instance, and may act on the first for the rest of its lease.
  witnessOf(a).isMute = true
  await done(b.join('two'))
  witnessOf(a).isMute = false
  expect([a.active, b.active]).toEqual(['one 1', 'two 2'])
  await fail('absent', [cold])
  witnessOf(b).delay = first
  witnessOf(a).delay = last
  await done(cold.directory.refresh('demo'))
  expect(cold.active).toBe('two 2')
})

test('an answer leads nowhere while it is not certain that nobody was granted more', async () => {
  await done(a.join('one'))
  await fail('silent')
  witnessOf(cold).vouches = false
  await pass(ground.leaseMs)
  expect(cold.directory.state).toBe('lost')
  expect(await done(cold.directory.refresh('demo'))).toBe('unknown')
  expect([witnessOf(cold).asked, cold.directory.find('demo')]).toEqual([[], 'unknown'])
})

test('a replica that may not act on what it knows does not tell it', async () => {
  await done(a.join('one'))
  await fail('silent')
  witnessOf(a).vouches = false
  await pass(ground.leaseMs)
  expect(a.directory.state).toBe('lost')
  expect(await done(cold.directory.refresh('demo'))).toBeUndefined()
  expect(witnessOf(cold).asked).toEqual(['demo'])
})

test('an answer grants nothing: a host stays with its runtime, and one that claims it here must wait', async () => {
  const host = 'hooks.customer.example'
  await done(a.join('first', 0, host))
  await fail('absent')
  await done(cold.directory.refresh(host))
  expect(said(await done(cold.join('second', 0, host)))).toBe('first 1')
  for (const { directory } of [cold, a, b]) expect(said(directory.find(host))).toBe('first 1')
  // A host that the others do not know is not free either.
  await done(cold.directory.refresh('other.example'))
  expect(cold.directory.find('other.example')).toBe('unknown')
})

test('answers are not passed on to others', async () => {
  await done(a.join('one'))
  await fail('absent')
  await done(cold.directory.refresh('demo'))
  expect(b.directory.find('demo')).toBe('unknown')
})

test('D9: others are asked rarely about a name that nobody serves, and it is a miss every ten seconds', async () => {
  await fail('absent')
  const answers: unknown[] = []
  const untilMs = performance.now() + 15_000
  while (performance.now() < untilMs) answers.push(await done(cold.directory.refresh('made-up')))
  // Whoever waits for it asks again after each answer.
  expect(answers.length).toBeLessThan(10)
  expect(answers.filter(answer => answer === undefined)).toEqual([undefined, undefined])
  expect(witnessOf(cold).asked).toEqual(answers.map(() => 'made-up'))
  // As soon as it is served, everybody is told.
  await done(a.join('one', 7, 'made-up'))
  expect(said(cold.directory.find('made-up'))).toBe('one 7')
})

test('D9: others are asked about so many names at a time, and callers in a network about so many that nobody serves', async () => {
  await fail('absent')
  witnessOf(a).delay = 50
  await done(Promise.all(Array.from({ length: 3000 }, (_, i) => cold.directory.refresh(`made-up-${i}`))))
  expect([witnessOf(cold).most, witnessOf(cold).asked.length]).toEqual([1000, 1000])
  const questions = new Questions(cold.directory)
  let refused = 0
  for (let i = 0; i < 30; i++) {
    const some = Array.from({ length: 10 }, (_, j) => questions.ask(`invented-${i}-${j}`, 'network'))
    refused += some.filter(answer => answer === 'refused').length
    await done(Promise.all(some))
  }
  expect(refused).toBeGreaterThan(0)
  expect(await done(Promise.resolve(questions.ask('invented', 'another network')))).toBeUndefined()
})

test('a question that cannot be asked again yet ends once the answer comes by itself', async () => {
  await fail('absent')
  expect(await done(cold.directory.refresh('demo'))).toBeUndefined()
  const answer = cold.directory.refresh('demo')
  await pass(200)
  await done(a.join('one', 7))
  const startedMs = performance.now()
  expect(said(await done(answer))).toBe('one 7')
  expect(performance.now() - startedMs).toBeLessThan(200)
  expect(witnessOf(cold).asked).toEqual(['demo'])
})

test('a replica that can be reached again is asked at once', async () => {
  await done(a.join('one'))
  await fail('absent')
  witnessOf(a).isMute = true
  expect(await done(cold.directory.refresh('demo'))).toBeUndefined()
  const answer = cold.directory.refresh('demo')
  await pass(200)
  witnessOf(a).isMute = false
  witnessOf(cold).listener!.reached()
  const startedMs = performance.now()
  expect(said(await done(answer))).toBe('one 1')
  expect(performance.now() - startedMs).toBeLessThan(300)
  expect(witnessOf(cold).asked).toEqual(['demo', 'demo'])
})

test('a question that cannot be asked again yet ends once the store can be asked', async () => {
  await fail('absent')
  expect(await done(cold.directory.refresh('demo'))).toBeUndefined()
  await pass(2000)
  expect(await done(cold.directory.refresh('demo'))).toBe('unknown')
  const answer = cold.directory.refresh('demo')
  cold.path.absent = false
  await done(answer)
  expect(witnessOf(cold).asked).toEqual(['demo', 'demo'])
})

test('if there are no others, nobody is asked, nothing counts, and it is not tried all the time', async () => {
  await fail('absent')
  for (const each of [a, b]) witnessOf(each).isMute = true
  const startedMs = performance.now()
  expect(await done(cold.directory.refresh('made-up'))).toBe('unknown')
  expect(performance.now() - startedMs).toBeGreaterThan(1900)
  // Until one comes.
  const answer = cold.directory.refresh('made-up')
  await pass(100)
  witnessOf(a).isMute = false
  const mutedMs = performance.now()
  expect(await done(answer)).toBeUndefined()
  expect(performance.now() - mutedMs).toBeLessThan(300)
})
