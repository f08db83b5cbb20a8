/** Lists, reads, replays and drops stored webhooks, and pauses delivery. */
import { Buffer } from 'node:buffer'
import type { Logger } from '../../protocol/base/log.ts'
import { checkNarrowing, type Members } from '../../protocol/base/members.ts'
import { inBatches } from '../batches.ts'
import type { Lanes } from './lanes.ts'
import type { Ledger } from './ledger.ts'
import type { InboxMac } from './mac.ts'
import { type Filter, type InboxStore, isRefusedLetter, type Message, type Progress } from './store.ts'

/** What operators can do with the webhooks that a server keeps. */
export interface InboxOperations {
  /** Whether several servers share the inbox. Each of them then reports all webhooks. */
  readonly shared: boolean
  /** The newest first. */
  list(filter: Filter): Promise<readonly Message[]>
  read(id: string): Promise<{ readonly head: Uint8Array; readonly body: Uint8Array } | undefined>
  /** Part `n` as it is stored: 0 is the head, the others are the body. `undefined` if there is no such part (any more). */
  readPart(id: string, n: number): Promise<Uint8Array | undefined>
  replay(filter: Filter): Promise<string[]>
  drop(filter: Filter): Promise<string[]>
  pause(runtime: string, paused: boolean): Promise<void>
}

const FILTER: Members<Filter> = {
  runtime: 'string',
  lane: 'string',
  state: 'string',
  since: 'number',
  id: 'string',
  reason: 'string',
  before: 'strings',
  limit: 'number',
}

interface OperationsParts {
  readonly store: InboxStore
  readonly mac: InboxMac | undefined
  readonly ledger: Ledger
  readonly lanes: Lanes
  readonly logger: Logger
  /** Ms since 1970. */
  readonly now: () => number
}

export class StoredWebhooks implements InboxOperations {
  readonly #parts: OperationsParts

  constructor(parts: OperationsParts) {
    this.#parts = parts
  }

  get shared(): boolean {
    return this.#parts.store.shared !== undefined
  }

  async list(filter: Filter): Promise<readonly Message[]> {
    checkNarrowing(filter, FILTER, 'match all')
    return await this.#parts.store.list(filter)
  }

  /** The head of a message as JSON, and its body. `undefined` if a part is missing, so that no body is shorter than it was. */
  async read(id: string): Promise<{ readonly head: Uint8Array; readonly body: Uint8Array } | undefined> {
    const [message] = await this.#parts.store.list({ id, limit: 1 })
    const head = message === undefined ? undefined : await this.readPart(message.id, 0)
    if (head === undefined) return undefined
    const body: Uint8Array[] = []
    for (let n = 1; n < message!.parts; n++) {
      const part = await this.readPart(message!.id, n)
      if (part === undefined) return undefined
      body.push(part)
    }
    return { head, body: Buffer.concat(body) }
  }

  async readPart(id: string, n: number): Promise<Uint8Array | undefined> {
    const { mac } = this.#parts
    const bytes = await this.#parts.store.part(id, n)
    if (mac === undefined || bytes === undefined) return bytes
    const [message] = await this.#parts.store.list({ id, limit: 1 })
    return message !== undefined && mac.verifies(message, n, bytes) ? bytes : undefined
  }

  /** Makes dead letters wait again, with their full age ahead of them. Messages that wait are tried at once. */
  async replay(filter: Filter): Promise<string[]> {
    const { ledger, lanes, logger } = this.#parts
    const done: string[] = []
    await inBatches(await this.list(filter), GROUP, async message => {
      if (message.state === 'delivered') return
      const age = message.expires - message.received
      const fresh = {
        failures: 0,
        refusals: 0,
        failedSince: 0,
        next: this.#parts.now(),
        // Never sooner than before: if the clock was set back since it arrived, `age` would shrink with each replay.
        expires: Math.max(message.expires, this.#parts.now() + age),
      }
      const set: Progress = { ...fresh, state: 'waiting', reason: 'replayed' }
      const { status } = await this.#parts.store.apply({ op: 'update', id: message.id, set, at: this.#parts.now() })
      // It was delivered or dropped after it was listed.
      if (status === 'absent') return
      if (message.state === 'dead') {
        if (isRefusedLetter(message)) ledger.addRefused(message.runtime, -1, -message.bytes)
        ledger.move('dead', 'waiting')
        lanes.add(message.runtime, message.lane, 1)
      }
      // It may have become a dead letter after it was listed, or somebody else may have replayed it.
      lanes.doubt()
      lanes.retryNow(message.runtime, message.lane)
      logger.info({ runtime: message.runtime, inboxId: message.id }, 'webhook replayed by an operator')
      done.push(message.id)
    })
    return done
  }

  async drop(filter: Filter): Promise<string[]> {
    const { ledger, lanes, logger } = this.#parts
    const done: string[] = []
    await inBatches(await this.list(filter), GROUP, async message => {
      const { id, runtime, lane, bytes } = message
      const { dropped } = await this.#parts.store.apply({ op: 'drop', id })
      if (dropped === undefined) return
      const { state } = dropped
      if (state === 'waiting') {
        lanes.doubt()
        lanes.remove(runtime, lane, 1)
      }
      if (isRefusedLetter(dropped)) ledger.addRefused(runtime, -1, -bytes)
      if (state !== 'delivered') ledger.add(runtime, -1, -bytes)
      ledger.move(state, undefined)
      logger.warn({ runtime, inboxId: id, reason: state }, 'webhook dropped by an operator')
      done.push(id)
    })
    return done
  }

  /** While a runtime is paused, its webhooks are stored and not delivered. */
  async pause(runtime: string, paused: boolean): Promise<void> {
    await this.#parts.store.apply({ op: 'pause', runtime, paused })
    this.#parts.lanes.pause(runtime, paused)
  }
}

/** The store commits concurrent changes as a group. One by one, thousands of them would take minutes. */
const GROUP = 256
