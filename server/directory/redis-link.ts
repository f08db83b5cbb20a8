/** One connection to Redis: scripts and the channel of changes, in order. It is made anew when it breaks. */
import { createClient } from '@redis/client'
import { CHANGE, RENEW, REVOKE, type Script } from './scripts.ts'

export interface RedisAddress {
  /** `redis://` or `rediss://`, with host, port and number of the database. */
  readonly url: string
  readonly user?: string | undefined
  readonly password?: string | undefined
  /** PEM certificates of the authority; default those of the system. */
  readonly ca?: string | Buffer | undefined
}

export interface LinkListener {
  message(text: string): void
  /** Once, last. */
  closed(error: Error): void
}

/** Operations that wait for their answer. */
const MAX_PENDING = 10_000

export class RedisLink {
  readonly #client: ReturnType<typeof createClient>
  readonly #listener: LinkListener
  readonly #deadlineMs: number
  /** When each operation that waits was sent, oldest first. */
  readonly #pending = new Set<{ readonly sentMs: number }>()
  #timer: NodeJS.Timeout | undefined
  #closed: Error | undefined
  roundTripMs = 0

  /** Resolves when scripts are loaded and the channel is heard; rejects at the latest after `deadlineMs`. */
  static async open(
    address: RedisAddress,
    channel: string,
    deadlineMs: number,
    listener: LinkListener,
  ): Promise<RedisLink> {
    const link = new RedisLink(address, deadlineMs, listener)
    await link.#open(channel)
    return link
  }

  private constructor(address: RedisAddress, deadlineMs: number, listener: LinkListener) {
    this.#listener = listener
    this.#deadlineMs = deadlineMs
    const tls = address.url.startsWith('rediss:')
    const base = { connectTimeout: deadlineMs, reconnectStrategy: false as const, noDelay: true }
    this.#client = createClient({
      url: address.url,
      RESP: 3,
      disableOfflineQueue: true,
      disableClientInfo: true,
      maintNotifications: 'disabled',
      commandsQueueMaxLength: MAX_PENDING + 10,
      commandOptions: { timeout: 0 },
      socket: tls ? { ...base, tls: true, ...(address.ca === undefined ? {} : { ca: address.ca }) } : base,
      ...(address.user === undefined ? {} : { username: address.user }),
      ...(address.password === undefined ? {} : { password: address.password }),
    })
    this.#client.on('error', error => this.#end(error as Error))
    this.#client.on('end', () => this.#end(new Error('Redis closed the connection')))
  }

  async #open(channel: string): Promise<void> {
    const timer = setTimeout(() => this.#end(new Error('Redis does not answer')), this.#deadlineMs)
    try {
      await this.#client.connect()
      await Promise.all([
        this.#client.sendCommand(['SCRIPT', 'LOAD', CHANGE.text]),
        this.#client.sendCommand(['SCRIPT', 'LOAD', RENEW.text]),
        this.#client.sendCommand(['SCRIPT', 'LOAD', REVOKE.text]),
        this.#client.subscribe(channel, text => this.#listener.message(text)),
      ])
    } catch (error) {
      const cause = this.#closed ?? (error as Error)
      this.#end(cause)
      throw cause
    } finally {
      clearTimeout(timer)
    }
  }

  /** Rejects when the link breaks, which it does if any answer takes longer than its deadline. */
  async run<Answer = string | null>(
    script: Script,
    keys: string | readonly string[],
    args: readonly string[],
  ): Promise<Answer> {
    const all = [keys].flat()
    return await this.#send<Answer>(['EVALSHA', script.sha, String(all.length), ...all, ...args])
  }

  async #send<Answer>(command: readonly string[]): Promise<Answer> {
    if (this.#closed !== undefined) throw this.#closed
    if (this.#pending.size >= MAX_PENDING) throw new Error('too many operations wait for Redis')
    const operation = { sentMs: performance.now() }
    this.#pending.add(operation)
    this.#watch()
    try {
      const answer = await this.#client.sendCommand<never>([...command])
      this.roundTripMs = performance.now() - operation.sentMs
      return answer
    } catch (error) {
      // An answer that is an error means that this is not the Redis that the scripts were loaded into, or its rights.
      this.#end(error as Error)
      throw error
    } finally {
      this.#pending.delete(operation)
    }
  }

  /** Resolves to how many heard it. Rejects as `run` does. */
  publish(channel: string, text: string): Promise<number> {
    return this.#send<number>(['PUBLISH', channel, text])
  }

  /** One timer, for the oldest operation. */
  #watch(): void {
    if (this.#timer !== undefined) return
    const [oldest] = this.#pending
    if (oldest === undefined) return
    const leftMs = oldest.sentMs + this.#deadlineMs - performance.now()
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        const [oldest] = this.#pending
        if (oldest !== undefined && performance.now() - oldest.sentMs >= this.#deadlineMs) {
          this.#end(new Error('Redis does not answer'))
        } else this.#watch()
      },
      Math.max(1, leftMs),
    ).unref()
  }

  close(): void {
    this.#end(new Error('closed'))
  }

  #end(error: Error): void {
    if (this.#closed !== undefined) return
    this.#closed = error
    clearTimeout(this.#timer)
    try {
      this.#client.destroy()
    } catch {
      // It was not open.
    }
    this.#listener.closed(error)
  }
}
