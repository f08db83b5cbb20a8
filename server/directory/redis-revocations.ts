/**
 * Revocations that all replicas share, in Redis: asked for when the channel tells of a new one, and every 5 s. While Redis
 * is away what was known holds, and what Redis has lost is written back.
 */
import type { Logger } from '../../protocol/log.ts'
import { formatRule, parseRevocations } from '../auth/revocation-list.ts'
import type { Revocation } from '../auth/revocations.ts'
import { type RedisAddress, RedisLink } from './redis-link.ts'
import { REVOKE } from './scripts.ts'

export interface RedisRevocationsOptions {
  /** Read at each connect. */
  readonly redis: () => Promise<RedisAddress>
  readonly prefix: string
  readonly logger: Logger
}

const REFRESH_MS = 5000
const DEADLINE_MS = 4000

export class RedisRevocations {
  readonly #options: RedisRevocationsOptions
  readonly #key: string
  readonly #channel: string
  /** Rules as they stand in Redis, or should. */
  #known: ReadonlySet<string> = new Set()
  #link: RedisLink | undefined
  #opening: Promise<RedisLink> | undefined
  #timer: NodeJS.Timeout | undefined
  #closed = false
  #failed = false
  /** Called with all rules whenever there is a new one. */
  onList: (rules: readonly Revocation[]) => void = () => {}

  constructor(options: RedisRevocationsOptions) {
    this.#options = options
    this.#key = `{${options.prefix}}:revocations`
    this.#channel = `${options.prefix}:revocations`
  }

  /** Asks for the first time, and then by itself for ever. Resolves whether or not it succeeded. */
  async open(): Promise<void> {
    try {
      await this.#exchange([])
      this.#failed = false
    } catch (error) {
      if (!this.#failed && !this.#closed) this.#options.logger.error({ err: error }, 'shared revocations: no Redis')
      this.#failed = true
    }
    clearTimeout(this.#timer)
    if (!this.#closed) this.#timer = setTimeout(() => void this.open(), REFRESH_MS).unref()
  }

  /** Tells all replicas. Rejects if Redis could not be told; then it is tried again. */
  async add(rule: Revocation): Promise<void> {
    const text = formatRule(rule)
    this.#known = new Set([...this.#known, text])
    await this.#exchange([text])
  }

  /** Gives rules, takes all there are; what Redis should have and has not is given again. */
  async #exchange(rules: readonly string[], again = true): Promise<void> {
    const link = await this.#connected()
    const answer = await link.run(REVOKE, this.#key, [this.#channel, ...rules.flatMap(rule => [rule, untilOf(rule)])])
    const there = parseRevocations(`{"revocations":${answer}}`)
    const texts = new Set(there.map(formatRule))
    const lost = [...this.#known].filter(rule => !texts.has(rule) && holds(rule))
    const fresh = [...texts].some(text => !this.#known.has(text))
    this.#known = new Set([...texts, ...lost])
    if (fresh) this.onList(parseRevocations(`{"revocations":[${[...this.#known].join(',')}]}`))
    if (lost.length > 0 && again) await this.#exchange(lost, false)
  }

  #connected(): Promise<RedisLink> {
    if (this.#link !== undefined) return Promise.resolve(this.#link)
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined
    })
    return this.#opening
  }

  async #connect(): Promise<RedisLink> {
    if (this.#closed) throw new Error('closed')
    const link = await RedisLink.open(await this.#options.redis(), this.#channel, DEADLINE_MS, {
      message: () => void this.open(),
      closed: () => {
        this.#link = undefined
      },
    })
    this.#link = link
    return link
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#link?.close()
  }
}

/** Seconds since 1970, or nothing. */
function untilOf(rule: string): string {
  const { until } = JSON.parse(rule) as { until?: number }
  return until === undefined ? '' : String(until)
}

function holds(rule: string): boolean {
  const until = untilOf(rule)
  return until === '' || Number(until) > Date.now() / 1000
}
