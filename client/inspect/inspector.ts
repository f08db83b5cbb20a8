/** The inspector: the layer that watches exchanges, the ring that keeps them, and replays. */
import { randomBytes } from 'node:crypto'
import { SallyportError } from '../../protocol/base/errors.ts'
import { hook, logDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { checkMembers, type Members } from '../../protocol/base/members.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import type { Handler, HttpRequest } from '../../protocol/exchange.ts'
import { isRepeatable } from '../../protocol/http/methods.ts'
import type { Layer } from '../../protocol/layer.ts'
import { Budget } from './budget.ts'
import { Entry, type EntryOwner } from './entry.ts'
import type {
  InspectedDetail,
  InspectedExchange,
  Inspector,
  InspectorStats,
  ReplayEdits,
  ReplayOptions,
} from './inspected.ts'
import { Redactor } from './redactor.ts'
import { ReplayRun, replayRequest } from './replay.ts'
import { Ring } from './ring.ts'
import { Tap } from './tap.ts'

const REPLAY: Members<ReplayOptions> = { edits: 'object', unsafe: 'boolean' }
const EDITS: Members<ReplayEdits> = { method: 'string', path: 'string', headers: 'object', body: 'string' }
const MAX_SUBSCRIBERS = 64
const MAX_REPLAYS = 4
/** Replays in a burst, and per second in the long run. */
const REPLAY_BURST = 5
const REPLAYS_PER_SECOND = 1

export class RingInspector implements Inspector, EntryOwner {
  readonly mode: 'heads' | 'bodies'
  readonly ring = new Ring<Entry>()
  readonly redactor = new Redactor()
  readonly budget: Budget
  readonly #logger: Logger
  /** Makes sure that ids of an earlier process match nothing in this one. */
  readonly #prefix = randomBytes(2).toString('hex')
  #count = 0
  readonly #listeners = new Set<(exchange: InspectedExchange) => void>()
  readonly #replays = new Set<ReplayRun>()
  readonly #pace = new TokenBucket(REPLAY_BURST, REPLAYS_PER_SECOND)
  #handler: Handler | undefined

  /** `now`: a monotonic clock, in ms. */
  constructor(mode: 'heads' | 'bodies', logger: Logger, now: () => number = () => performance.now()) {
    this.mode = mode
    this.#logger = logger
    this.budget = new Budget(now)
  }

  readonly layer: Layer = next => {
    this.#handler = (request, response) => this.#watch(next, request, response)
    return this.#handler
  }

  #watch(next: Handler, ...[request, response]: Parameters<Handler>): ReturnType<Handler> {
    const entry = this.#enter(request)
    return entry === undefined ? next(request, response) : new Tap(entry, response, this.#logger).pass(next, request)
  }

  /** Undefined after a defect of ours, which must not harm the exchange. */
  #enter(request: HttpRequest): Entry | undefined {
    try {
      const entry = new Entry(this.#idOf(++this.#count), this, request)
      this.changed(entry)
      return entry
    } catch (error) {
      logDefect(this.#logger, 'the inspector failed', error)
      return undefined
    }
  }

  #idOf(count: number): string {
    return `${this.#prefix}-${count.toString(36)}`
  }

  changed(entry: Entry): void {
    if (this.#listeners.size === 0) return
    const exchange = entry.summary()
    for (const listener of this.#listeners) listener(exchange)
  }

  list(): InspectedExchange[] {
    return Array.from(this.ring, entry => entry.summary())
  }

  get(id: string): InspectedDetail | undefined {
    return this.ring.get(id)?.detail()
  }

  subscribe(listener: (exchange: InspectedExchange) => void): () => void {
    if (this.#listeners.size >= MAX_SUBSCRIBERS) {
      throw new SallyportError('overloaded', `${MAX_SUBSCRIBERS} listeners already watch the inspector`)
    }
    const hooked = hook('a listener of the inspector', listener, this.#logger)
    this.#listeners.add(hooked)
    return () => {
      this.#listeners.delete(hooked)
    }
  }

  async replay(id: string, options: ReplayOptions = {}): Promise<InspectedDetail> {
    checkMembers('', options, REPLAY)
    checkMembers('edits', options.edits, EDITS)
    const { edits = {}, unsafe = false } = options
    const entry = this.ring.get(id)
    if (entry === undefined) throw new TypeError(`there is no exchange ${JSON.stringify(id)}`)
    const source = entry.replaySource
    if (source === undefined) throw new TypeError(`the request of ${id} cannot be replayed: ${whyNot(entry.detail())}`)
    const { request, body } = replayRequest(id, source, edits)
    if (!unsafe && !isRepeatable(request)) {
      throw new TypeError(`${request.method} may act twice on the target: it is replayed only with unsafe (--yes)`)
    }
    if (this.#replays.size >= MAX_REPLAYS || !this.#pace.take()) {
      throw new SallyportError('overloaded', 'too many replays: wait a moment')
    }
    const { requestId } = request
    const edited = Object.entries(edits).flatMap(([name, edit]) => (edit === undefined ? [] : [name]))
    this.#logger.info({ audit: true, replayOf: id, requestId, edited }, 'an exchange is replayed')
    return await this.#run(request, body)
  }

  async #run(request: HttpRequest, body: Buffer): Promise<InspectedDetail> {
    const replay = new ReplayRun()
    this.#replays.add(replay)
    try {
      const id = this.#idOf(this.#count + 1)
      const running = replay.run(this.#handler!, request, body)
      // The entry exists before its target can make room for others.
      const entry = this.ring.get(id)!
      await running
      return entry.detail()
    } finally {
      this.#replays.delete(replay)
    }
  }

  stats(): InspectorStats {
    const { size, bytes, droppedExchanges, droppedBytes } = this.ring
    return { mode: this.mode, exchanges: size, bytes, replays: this.#replays.size, droppedExchanges, droppedBytes }
  }

  /** Ends the replays, and forgets everything. */
  close(): void {
    for (const replay of this.#replays) replay.end(new SallyportError('shutting-down', 'the client is closing'))
    this.#listeners.clear()
    this.ring.clear()
  }
}

function whyNot({ upgrade, state, request }: InspectedDetail): string {
  if (upgrade) return 'it became a WebSocket'
  if (request.body?.omitted === 'bodies are not kept') return 'its body was not kept (inspect: bodies keeps it)'
  return state === 'open' ? 'it is not complete yet' : 'its body was not kept in full'
}
