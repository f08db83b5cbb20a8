/**
 * Revocations that all replicas share, in Redis. A replica fetches them when the channel announces a change, or when their version,
 * which it checks every 5 s, has changed. While Redis is away, the known rules stay in force. Rules that Redis has lost are written
 * back. While the list cannot be read, nobody may connect, since it may name anybody.
 */
import { isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { detached, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { formatRule, MAX_LIST_BYTES, parseRule } from '../auth/revocation-list.ts'
import type { SharedRevocations } from '../auth/revocation-store.ts'
import { KEEP_OVER_S, MAX_REVOCATIONS, type Revocation } from '../auth/revocations.ts'
import { type RedisAddress, RedisLink } from './redis-link.ts'
import { channelOf } from './redis-url.ts'
import { REVOKE } from './scripts.ts'

export interface RedisRevocationsOptions {
  /** Called for each connection. */
  readonly redis: () => Promise<RedisAddress>
  readonly prefix: string
  readonly logger: Logger
  /** Milliseconds since 1970. */
  readonly now: () => number
}

const REFRESH_MS = 5000
const REFRESH_FAILED = 'fetching the shared revocations failed'
/** A manual change does not change the version, so the list is fetched anyway after this many rounds. */
const FETCH_ROUNDS = 12
const DEADLINE_MS = 4000
/** Others may have written a longer list than we would. It is read up to these limits. */
const MAX_READ = 10 * MAX_REVOCATIONS
const MAX_READ_BYTES = 8 * MAX_LIST_BYTES
/** Shown for a longer list. Removing this entry removes everything from the list that no replica knows. */
const LONG = `a list of over ${MAX_READ} entries or ${MAX_READ_BYTES} bytes`
/** How long a removed rule is remembered as removed. */
const KEEP_REMOVED_S = 7 * 86_400
/** How much of an invalid entry is logged. */
const MAX_SHOWN = 200

/** By their text in Redis. */
type Rules = ReadonlyMap<string, Revocation>

/** `fill` writes back what Redis should have, `set` makes a change, and `clear` replaces a list that is too long. */
type Mode = 'set' | 'fill' | 'clear'

/** An entry's text, or its bytes if they are not valid UTF-8. */
type EntryText = string | Buffer

/** Entries that the next exchange writes, and the rules that Redis has after it. */
interface Batch {
  readonly entries: EntryText[]
  readonly rules: Promise<Rules>
}

export class RedisRevocations implements SharedRevocations {
  readonly #options: RedisRevocationsOptions
  readonly #key: string
  readonly #keys: readonly string[]
  /** Marks the rules that were added here only. */
  readonly #id = randomBytes(6).toString('base64url')
  /** The version of the list that was last read. */
  #version = ''
  /** The list may have changed although its version has not. */
  #stale = true
  #rounds = 0
  /** Rules that Redis has, or should have. */
  #known: Rules = new Map()
  /** Entries of changes made here that Redis has not confirmed, and their values. Each exchange begins with them. */
  readonly #unsent = new Map<string, string>()
  /** The rules of the last call of `onList`. */
  #reported: Rules = new Map()
  #link: RedisLink | undefined
  /** Aborted to close the link, whether it is open by then or not. Also when the list closes. */
  #linking = new AbortController()
  #batch: Batch | undefined
  /** One exchange at a time, since each answer is the whole list, and Redis buffers only a few of these for a client. */
  #exchanging: Promise<unknown> = Promise.resolve()
  #timer: NodeJS.Timeout | undefined
  #closed = false
  #failure = ''
  readable = true
  odd: readonly string[] = []
  /** The entries among them that are not valid UTF-8, by their text as shown. */
  #nonUtf8: ReadonlyMap<string, readonly Buffer[]> = new Map()
  /** Called with all rules whenever one is added or removed. */
  onList: (rules: readonly Revocation[]) => void = () => {}

  constructor(options: RedisRevocationsOptions) {
    this.#options = options
    this.#key = `{${options.prefix}}:revocations`
    this.#keys = [this.#key, `${this.#key}:version`]
  }

  /** An operation on the old link, or an attempt to open one, might take its whole deadline to find that its path is gone. */
  async reread(): Promise<void> {
    this.#linking.abort()
    if (this.#closed) return
    this.#linking = new AbortController()
    await this.#share([])
  }

  /** Fetches the list, and keeps fetching it. Resolves whether or not the first attempt succeeded. */
  async open(): Promise<void> {
    try {
      // A Redis that has become a standby still answers, but what it has may be old. If this fails, there is a new link.
      if (this.#link !== undefined) await this.#link.check(this.#key).catch(() => {})
      await this.#share([])
    } catch (error) {
      this.#failed('shared revocations: no Redis', error as Error)
    }
    clearTimeout(this.#timer)
    if (this.#closed) return
    const guard = logGuard(this.#options.logger, REFRESH_FAILED)
    const due = guard(() => {
      if (++this.#rounds % FETCH_ROUNDS === 0) this.#stale = true
      this.#refresh()
    })
    this.#timer = setTimeout(due, REFRESH_MS).unref()
  }

  /** A replica of a release without versions announces a change with an empty one. */
  #notified(version: string): void {
    if (version === '') this.#stale = true
    else if (version === this.#version) return
    this.#refresh()
  }

  #refresh(): void {
    detached(this.#options.logger, REFRESH_FAILED, this.open())
  }

  /** Logs it once. */
  #failed(text: string, error: Error): void {
    if (this.#failure !== text && !this.#closed) this.#options.logger.error({ err: error }, text)
    this.#failure = text
  }

  /** Adds a rule for all replicas. Rejects if Redis could not be reached, or has no room for it; then it is tried again. */
  async add(rule: Revocation): Promise<void> {
    const text = formatRule(rule)
    const value = `${this.#id} ${untilOf(rule)}`
    this.#unsent.set(text, value)
    this.#known = new Map([...this.#known, [text, rule]])
    const rules = await this.#share([text, value])
    if (rules.has(text)) return
    throw new RangeError(
      `the directory can hold ${MAX_REVOCATIONS} revocations and ${MAX_LIST_BYTES} bytes: remove some`,
    )
  }

  async remove(isRemoved: (text: string) => boolean): Promise<void> {
    // A rule that was written by hand may have a different spelling.
    const rules = [...this.#known].filter(([, rule]) => isRemoved(formatRule(rule)))
    const texts = [...rules.map(([text]) => text), ...this.odd.filter(isRemoved)]
    if (texts.length === 0) return
    if (texts.includes(LONG)) {
      await this.#inTurn(() => this.#exchange('clear', entriesOf(this.#known)))
      return
    }
    const until = Math.floor(this.#options.now() / 1000) + KEEP_REMOVED_S
    const entries = texts.flatMap((text): readonly EntryText[] => this.#nonUtf8.get(text) ?? [text])
    try {
      await this.#share(entries.flatMap(entry => [entry, `removed ${until}`]))
    } catch (error) {
      if (!texts.every(text => this.#unsent.has(text) && !this.#reported.has(text))) throw error
      // Redis may have one all the same, if only its answer was lost. Somebody else may have added it there.
      for (const text of texts) this.#unsent.set(text, `removed ${this.#id} ${until}`)
      this.#known = new Map([...this.#known].filter(([text]) => !texts.includes(text)))
    }
  }

  /** Writes entries, reads all, and resolves to the rules among them. Calls during an exchange share the next one. */
  #share(entries: readonly EntryText[]): Promise<Rules> {
    this.#batch ??= this.#begin()
    for (const entry of entries) this.#batch.entries.push(entry)
    return this.#batch.rules
  }

  #begin(): Batch {
    const entries: EntryText[] = []
    const rules = this.#inTurn(async () => {
      this.#batch = undefined
      const unsent = [...this.#unsent]
      const all = [...unsent.flat(), ...entries]
      const there = await this.#exchange(all.length > 0 ? 'set' : 'fill', all)
      for (const [text, value] of unsent) if (this.#unsent.get(text) === value) this.#unsent.delete(text)
      return there
    })
    return { entries, rules }
  }

  #inTurn(exchange: () => Promise<Rules>): Promise<Rules> {
    const rules = this.#exchanging.then(exchange)
    this.#exchanging = rules.catch(() => {
      this.#stale = true
    })
    return rules
  }

  /** Resolves to the rules that Redis has. Rules that it lacks are written back. */
  async #exchange(mode: Mode, entries: readonly EntryText[], again = true): Promise<Rules> {
    const link = await this.#connected()
    const seen = this.#stale ? '' : this.#version
    this.#stale = false
    const nowS = Math.floor(this.#options.now() / 1000)
    const bounds = [MAX_REVOCATIONS, MAX_LIST_BYTES, MAX_READ, MAX_READ_BYTES, KEEP_OVER_S, nowS].map(String)
    const args = [link.channel, ...bounds, seen, mode, ...entries]
    const [version = '', kind, , ...there] = await link.runForBytes(REVOKE, this.#keys, args)
    if (String(kind) === 'same') return this.#known
    this.#version = String(version)
    if (String(kind) === 'long') {
      this.#adopt(this.#known, [LONG])
      return new Map()
    }
    const { rules, odd, removed } = this.#read(there)
    // The second time, Redis has declined rules that are over, since others need their room.
    const keptS = nowS - (again ? KEEP_OVER_S : 0)
    // One that was added here during the exchange is not lost, even if Redis still has its removal.
    const isGone = (text: string) => removed.has(text) && !this.#unsent.has(text)
    const isLost = (text: string, { until }: Revocation) =>
      !rules.has(text) && !isGone(text) && (until === undefined || !(until <= keptS))
    const lost = [...this.#known].filter(([text, rule]) => isLost(text, rule))
    this.#adopt(new Map([...rules, ...lost]), odd)
    if (lost.length > 0 && again) await this.#exchange('fill', entriesOf(lost), false)
    return rules
  }

  #read(there: readonly Buffer[]) {
    const rules = new Map<string, Revocation>()
    const odd: string[] = []
    const torn: Buffer[] = []
    const removed = new Set<string>()
    for (let i = 0; i + 1 < there.length; i += 2) {
      const bytes = there[i]!
      const text = bytes.toString()
      if (there[i + 1]!.toString().startsWith('removed')) {
        removed.add(text)
        continue
      }
      if (!isUtf8(bytes)) {
        torn.push(bytes)
        continue
      }
      try {
        rules.set(text, this.#known.get(text) ?? parseRule(text))
      } catch {
        odd.push(text)
      }
    }
    this.#nonUtf8 = Map.groupBy(torn, String)
    return { rules, odd: [...odd, ...this.#nonUtf8.keys()], removed }
  }

  #adopt(rules: Rules, odd: readonly string[]): void {
    this.#known = rules
    this.odd = odd
    this.readable = odd.length === 0
    if (this.readable) this.#failure = ''
    else {
      const error = new Error(`not a revocation: ${odd[0]!.slice(0, MAX_SHOWN)}`)
      this.#failed(
        'the shared revocations cannot be read; nobody may connect until `sallyport revocations remove` removes the invalid entry',
        error,
      )
    }
    if (isSame(rules, this.#reported)) return
    this.#reported = rules
    this.onList([...rules.values()])
  }

  async #connected(): Promise<RedisLink> {
    if (this.#link !== undefined) return this.#link
    this.#stale = true
    const { redis, prefix } = this.#options
    const listener = {
      message: (version: string) => this.#notified(version),
      closed: () => {
        this.#link = undefined
      },
    }
    const { signal } = this.#linking
    const address = await redis()
    const place = { channel: channelOf(address.url, prefix, 'revocations'), key: this.#key }
    this.#link = await RedisLink.open(address, place, DEADLINE_MS, listener, signal)
    return this.#link
  }

  close(): void {
    this.#closed = true
    this.#linking.abort()
    clearTimeout(this.#timer)
  }
}

function entriesOf(rules: Iterable<readonly [string, Revocation]>): string[] {
  return [...rules].flatMap(([text, rule]) => [text, untilOf(rule)])
}

/** Seconds since 1970, or an empty text. Without an exponent, which the script would read as the time. */
function untilOf({ until }: Revocation): string {
  return until === undefined ? '' : String(Math.min(until, Number.MAX_SAFE_INTEGER))
}

function isSame(a: Rules, b: Rules): boolean {
  return a.size === b.size && [...a.keys()].every(text => b.has(text))
}
