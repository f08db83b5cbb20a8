/**
 * Dead letters that their receiver refused, or a router in front of it. Strangers can make any number of them with forgeries. So they keep
 * no other webhook out: once a quota is nearly used up, some are deleted. The network that has most of them loses its oldest ones, so that a
 * stranger cannot keep more of them than another sender.
 */
import { networkOf } from '../../protocol/base/address.ts'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { inBatches } from '../batches.ts'
import type { InboxLimits } from '../limits.ts'
import type { Account, Ledger } from './ledger.ts'
import { decodeCaller } from './spans.ts'
import { type InboxStore, type Message, REFUSED } from './store.ts'

interface RefusedLettersParts {
  readonly store: InboxStore
  readonly limits: InboxLimits
  readonly ledger: Ledger
  readonly logger: Logger
}

interface Letter {
  readonly id: string
  readonly bytes: number
  /** Share of the quota that its network takes with this letter and its newer ones. */
  readonly share: number
}

/** How many are listed, or deleted, at a time. */
const PAGE = 1000
const GROUP = 256

export class RefusedLetters {
  readonly #parts: RefusedLettersParts
  readonly #trimming = new Set<string>()
  /** How many were deleted. */
  deleted = 0

  constructor(parts: RefusedLettersParts) {
    this.#parts = parts
  }

  /** One more. */
  add({ runtime, bytes }: Message): void {
    const { ledger, logger } = this.#parts
    ledger.addRefused(runtime, 1, bytes)
    detached(logger, 'deleting refused dead letters failed', this.#trim(runtime))
  }

  /** Call it when the ledger was loaded. */
  async trimAll(): Promise<void> {
    for (const runtime of this.#parts.ledger.withRefused) await this.#trim(runtime)
  }

  async #trim(runtime: string): Promise<void> {
    const { ledger } = this.#parts
    const room = ledger.roomForRefused(runtime)
    if (room === undefined || this.#trimming.has(runtime)) return
    this.#trimming.add(runtime)
    try {
      const [surplus, left] = divide(await this.#list(runtime), room)
      await this.#delete(runtime, surplus)
      // Other servers may have deleted some, too.
      ledger.setRefused(runtime, left.length, bytesOf(left))
    } finally {
      this.#trimming.delete(runtime)
    }
  }

  /** In pages, since there may be any number of them. */
  async #list(runtime: string): Promise<Letter[]> {
    const { store, limits } = this.#parts
    const letters: Letter[] = []
    const shares = new Map<string, number>()
    for (let before: string[] = []; ; ) {
      const page = await store.list({ runtime, state: 'dead', reason: REFUSED, before, limit: PAGE })
      for (const message of page) {
        const network = networkOfCaller(message)
        const own = Math.max(1 / limits.messagesPerRuntime, message.bytes / limits.bytesPerRuntime)
        const share = (shares.get(network) ?? 0) + own
        shares.set(network, share)
        letters.push({ id: message.id, bytes: message.bytes, share })
      }
      if (page.length < PAGE) return letters
      // All of them, since another server may delete the last ones.
      before = page.map(({ id }) => id)
    }
  }

  async #delete(runtime: string, letters: readonly Letter[]): Promise<void> {
    const { store, ledger, logger } = this.#parts
    let messages = 0
    await inBatches(letters, GROUP, async ({ id, bytes }) => {
      const { status } = await store.apply({ op: 'drop', id, state: 'dead' })
      // It was replayed, or dropped.
      if (status === 'absent') return
      ledger.add(runtime, -1, -bytes)
      ledger.move('dead', undefined)
      messages++
    })
    this.deleted += messages
    if (messages > 0)
      logger.warn({ runtime, messages }, 'refused dead letters were deleted, since others need the room')
  }
}

/** The letters that must go, and those that fit into the room. */
function divide(letters: readonly Letter[], room: Readonly<Account>): [surplus: Letter[], left: Letter[]] {
  const ranked = letters.toSorted((one, other) => other.share - one.share)
  let first = 0
  let bytes = bytesOf(letters)
  while (letters.length - first > room.messages || bytes > room.bytes) bytes -= ranked[first++]!.bytes
  return [ranked.slice(0, first), ranked.slice(first)]
}

function bytesOf(letters: readonly Letter[]): number {
  return letters.reduce((sum, { bytes }) => sum + bytes, 0)
}

/** Somebody may have written something else to the store. */
function networkOfCaller({ caller }: Message): string {
  try {
    return networkOf(decodeCaller(caller).address)
  } catch {
    return ''
  }
}
