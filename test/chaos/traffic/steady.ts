/** A steady caller: one connection, one request at a time, at its own pace. It sends nothing twice. */
import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as wait } from 'node:timers/promises'
import type { Place } from '../../support/caller.ts'
import { CallerConnection, NotTaken, type Result } from './connection.ts'
import { Expected } from './content.ts'
import type { Ledger, Outcome } from './ledger.ts'
import type { TrafficUpstream } from './upstream.ts'

/** Longer than anything that may delay a request: the hold, or a black hole until it is noticed. */
const DEADLINE_MS = 60_000
const REFUSED_WAIT_MS = 100
/** One in this many requests of a caller is slow. */
const PATTERN = 50

export class SteadyCaller {
  readonly #name: string
  readonly #place: Place
  readonly #upstream: TrafficUpstream
  readonly #ledger: Ledger
  readonly #everyMs: number
  #connection: CallerConnection | undefined
  /** Callers begin at different places of the pattern. If their slow requests coincided, that would look like a gap. */
  #count = Math.floor(Math.random() * PATTERN)

  constructor(name: string, place: Place, upstream: TrafficUpstream, ledger: Ledger, everyMs: number) {
    this.#name = name
    this.#place = place
    this.#upstream = upstream
    this.#ledger = ledger
    this.#everyMs = everyMs
  }

  /** Runs until `stop`, and finishes the request in progress. Late requests are not made up for. */
  async run(stop: AbortSignal): Promise<void> {
    let dueMs = performance.now() + Math.random() * this.#everyMs
    while (!stop.aborted) {
      await wait(Math.max(0, dueMs - performance.now()), undefined, { signal: stop }).catch(() => {})
      if (stop.aborted) break
      dueMs = Math.max(performance.now(), dueMs + this.#everyMs)
      await this.#once()
    }
    this.#connection?.close()
  }

  async #once(): Promise<void> {
    const id = `${this.#name}-${this.#count++}`
    const isPost = this.#count % 3 === 0
    const entry = this.#ledger.begin(isPost ? 'POST' : 'GET', this.#upstream.runtime)
    try {
      this.#connection = this.#connection?.isOpen ? this.#connection : await CallerConnection.dial(this.#place)
      entry.end(isPost ? await this.#post(this.#connection, id) : await this.#get(this.#connection, id))
    } catch (error) {
      if (!(error instanceof NotTaken)) throw error
      entry.end({ kind: 'refused', reason: error.message })
      await wait(REFUSED_WAIT_MS)
    }
  }

  async #get(connection: CallerConnection, id: string): Promise<Outcome> {
    const { runtime } = this.#upstream
    const bytes = this.#bytes()
    const expected = new Expected(`${runtime} ${id}`, bytes)
    const path = `/get/${runtime}/${id}?bytes=${bytes}&ms=${this.#thinkMs()}`
    const onData = (chunk: Buffer) => expected.data(chunk)
    return judge(await connection.ask({ method: 'GET', path, onData }, DEADLINE_MS), expected)
  }

  async #post(connection: CallerConnection, id: string): Promise<Outcome> {
    const { runtime } = this.#upstream
    const body = randomBytes(this.#bytes())
    const bytes = 200
    const digest = createHash('sha256').update(body).digest('hex')
    const expected = new Expected(`${runtime} ${id} ${digest}`, bytes)
    const path = `/hook/${runtime}/${id}?bytes=${bytes}&ms=${this.#thinkMs()}`
    const onData = (chunk: Buffer) => expected.data(chunk)
    const outcome = judge(await connection.ask({ method: 'POST', path, body, onData }, DEADLINE_MS), expected)
    if (outcome.kind === 'ok' && !this.#upstream.hasExecuted(id)) return { kind: 'wrong', reason: `${id} never ran` }
    return outcome
  }

  /** Mostly small. One in sixteen is larger than what is kept for a retry. */
  #bytes(): number {
    return this.#count % 16 === 0 ? 100_000 : 200 + (this.#count % 7) * 300
  }

  /** Mostly quick, but some are in progress whenever a fault happens. */
  #thinkMs(): number {
    if (this.#count % PATTERN === 0) return 1000
    return this.#count % 10 === 0 ? 200 : 5
  }
}

/** The fate of a request whose answer should be `expected`. */
export function judge(result: Result, expected: Expected): Outcome {
  if (result.kind === 'unanswered') return { kind: 'lost', reason: result.reason }
  if (result.kind === 'cut') return { kind: 'cut', reason: result.reason }
  if (result.status !== 200) return { kind: 'lost', reason: `${result.status} ${result.code}` }
  const problem = expected.end()
  return problem === undefined ? { kind: 'ok' } : { kind: 'wrong', reason: problem }
}
