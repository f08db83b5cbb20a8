/**
 * One connection to Redis, with scripts and the channel of changes in order. When it breaks, its owner makes another one, which
 * looks up the node that has the keys again, since a failover moves them.
 *
 * A client for clusters keeps its subscriptions on separate connections, and would lose the order that the directory is built
 * on. All keys share one slot, so one connection to the node that has it is enough.
 */
import { RESP_TYPES } from '@redis/client'
import { errorOf } from '../../protocol/base/errors.ts'
import { type Guard, guardWith } from '../../protocol/base/guard.ts'
import { endClient, isClosedByRedis, makeClient, type RedisClient } from './redis-client.ts'
import { askSentinels, bySilence, movedTo } from './redis-location.ts'
import { CHANNELS, channelOf, isAddress, type RedisLocation, readPlace } from './redis-url.ts'
import { CHANGE, RENEW, REVOKE, RIGHTS, type Script, WRITE } from './scripts.ts'
import { ClosedByStore, NoRight, QueueFull } from './store.ts'

export interface RedisAddress {
  /** See `redis-url.ts`. */
  readonly url: string
  readonly user?: string | undefined
  readonly password?: string | undefined
  /** Credentials for Sentinels, which do not know the users of Redis. */
  readonly sentinel?: { readonly user?: string | undefined; readonly password?: string | undefined } | undefined
  /** PEM certificates of the authority. Default: the system's authorities. */
  readonly ca?: string | Buffer | undefined
}

interface LinkListener {
  message(text: string): void
  /** Called once, and last. */
  closed(error: Error): void
}

/** Most operations that wait for their answer. */
const MAX_PENDING = 10_000

const HELLO = ['HELLO', '3']
type Hello = Readonly<Record<'mode' | 'role', string>>

const BYTES = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } }

/** How often a node of a cluster may redirect to another one. */
const MAX_MOVES = 5

/**
 * When a host of an address, or what it redirected to or named, last kept a link waiting until its deadline. Others are tried before it.
 * Otherwise a host that is off would use up every attempt.
 */
const silentAt = new Map<string, number>()
const MAX_SILENT = 64

function noteSilent(host: string): void {
  silentAt.delete(host)
  silentAt.set(host, performance.now())
  if (silentAt.size > MAX_SILENT) silentAt.delete(silentAt.keys().next().value!)
}

export class RedisLink {
  /** What is published on it arrives here. */
  readonly channel: string
  readonly #address: RedisAddress
  readonly #place: RedisLocation
  readonly #listener: LinkListener
  readonly #deadlineMs: number
  #client: RedisClient | undefined
  /** The host of the address that is being tried, unless Sentinels named it. */
  #asked: string | undefined
  /** All clients made for the link, so that none outlives it. */
  readonly #clients = new Set<RedisClient>()
  /** When each waiting operation was sent, oldest first. */
  readonly #pending = new Set<{ readonly sentMs: number }>()
  #timer: NodeJS.Timeout | undefined
  #closed: Error | undefined
  readonly #ending = Promise.withResolvers<never>()
  #isOpen = false
  /** A failure in an event or a timer ends the link; its owner makes another one. */
  readonly #guard: Guard = guardWith(error => this.#end(errorOf(error)))
  /** There are standbys, which may still grant something although nobody listens at one address. */
  several: boolean

  /**
   * Resolves when the scripts are loaded and the channel is subscribed, on the node that has `key`. Rejects after `deadlineMs`
   * at the latest. Aborting `signal` closes the link, whether it is open by then or not.
   */
  static async open(
    address: RedisAddress,
    { channel, key }: { readonly channel: string; readonly key: string },
    deadlineMs: number,
    listener: LinkListener,
    signal?: AbortSignal,
  ): Promise<RedisLink> {
    if (signal?.aborted) throw new Error('closed')
    const link = new RedisLink(address, channel, deadlineMs, listener)
    const late = link.#guard(() => {
      if (link.#asked !== undefined) noteSilent(link.#asked)
      link.#end(new Error('Redis does not answer'))
    })
    const timer = setTimeout(late, deadlineMs)
    const abandon = link.#guard(() => link.close())
    signal?.addEventListener('abort', abandon)
    link.#ending.promise.catch(link.#guard(() => signal?.removeEventListener('abort', abandon)))
    try {
      // Some of the steps in there would not notice that the link has ended.
      await Promise.race([link.#open(key), link.#ending.promise])
      return link
    } catch (error) {
      const cause = link.#closed ?? (error as Error)
      link.#end(cause)
      throw cause
    } finally {
      clearTimeout(timer)
    }
  }

  private constructor(address: RedisAddress, channel: string, deadlineMs: number, listener: LinkListener) {
    this.channel = channel
    this.#address = address
    this.#place = readPlace(address.url)
    this.#listener = listener
    this.#deadlineMs = deadlineMs
    this.several = this.#place.sentinel !== undefined || this.#place.hosts.length > 1
  }

  #clientFor(host: string, isRedis: boolean): RedisClient {
    if (this.#closed !== undefined) throw this.#closed
    if (!isAddress(host))
      throw new Error(`${JSON.stringify(host.slice(0, 100))}, which Redis or a Sentinel named, is no address`)
    const { tls, database, credentials } = this.#place
    const { ca } = this.#address
    const { user, password } = isRedis ? this.#address : (this.#address.sentinel ?? {})
    const base = { connectTimeout: this.#deadlineMs, reconnectStrategy: false as const, noDelay: true }
    const login = isRedis && credentials !== undefined ? `${credentials}@` : ''
    const client = makeClient({
      url: `redis${tls ? 's' : ''}://${login}${host}`,
      RESP: 3,
      disableOfflineQueue: true,
      disableClientInfo: true,
      maintNotifications: 'disabled',
      commandsQueueMaxLength: MAX_PENDING + 10,
      commandOptions: { timeout: 0 },
      socket: tls ? { ...base, tls: true, rejectUnauthorized: true, ...(ca === undefined ? {} : { ca }) } : base,
      ...(isRedis && database > 0 ? { database } : {}),
      ...(user === undefined ? {} : { username: user }),
      ...(password === undefined ? {} : { password }),
    })
    this.#clients.add(client)
    return client
  }

  async #open(key: string): Promise<void> {
    const { hosts, sentinel } = this.#place
    const candidates =
      sentinel === undefined
        ? bySilence(hosts, silentAt)
        : askSentinels(this.#place, host => this.#clientFor(host, false), silentAt, this.#deadlineMs / 4)
    const errors: unknown[] = []
    let moves = 0
    for await (const candidate of candidates) {
      this.#asked = candidate
      for (let host: string | undefined = candidate; host !== undefined; ) {
        try {
          await this.#try(host, key)
          silentAt.delete(candidate)
          return
        } catch (error) {
          if (this.#closed !== undefined) throw this.#closed
          host = movedTo(error, host)
          if (host === undefined) errors.push(error)
          else if (++moves > MAX_MOVES) throw error
        }
      }
    }
    const refused = errors.find(error => error instanceof NoRight)
    if (refused !== undefined || !this.several) throw refused ?? errors[0]
    // Drops the code: if nobody listens at these addresses, that does not mean that Redis is down.
    throw new Error([...new Set(errors.map(String))].join('; '))
  }

  async #try(host: string, key: string): Promise<void> {
    const client = this.#clientFor(host, true)
    this.#client = client
    const broken = this.#guard((error: Error) => this.#ended(client, error))
    const ended = this.#guard(() => this.#ended(client, new Error('Redis closed the connection')))
    const message = this.#guard((text: string) => this.#listener.message(text))
    client.on('error', broken)
    client.on('end', ended)
    try {
      await client.connect()
      const hello = await client.sendCommand<Hello>(HELLO)
      if (hello.mode === 'sentinel') throw new Error('this is a Sentinel: use redis+sentinel://HOST:PORT/NAME')
      this.several ||= hello.mode === 'cluster'
      if (hello.mode === 'cluster') await client.sendCommand(lookFor(key)).catch(throwUnlessHere)
      const problem = standbyProblem(hello)
      if (problem !== undefined) throw problem
      await Promise.all([
        client.sendCommand(['SCRIPT', 'LOAD', CHANGE.text]),
        client.sendCommand(['SCRIPT', 'LOAD', RENEW.text]),
        client.sendCommand(['SCRIPT', 'LOAD', REVOKE.text]),
        client.sendCommand(['SCRIPT', 'LOAD', RIGHTS.text]),
        client.sendCommand(['SCRIPT', 'LOAD', WRITE.text]),
        client.subscribe(this.channel, message),
      ])
      this.#isOpen = true
    } catch (error) {
      if (this.#client === client) this.#client = undefined
      endClient(client)
      throw named(error as Error)
    }
  }

  /** Ignores clients that were only tried. */
  #ended(client: RedisClient, error: Error): void {
    if (client === this.#client && this.#isOpen) this.#end(error)
  }

  /** Rejects if the link breaks. An answer that misses its deadline breaks it. */
  async run<Answer = string | null>(
    script: Script,
    keys: string | readonly string[],
    args: readonly string[],
  ): Promise<Answer> {
    return await this.#send<Answer>(callOf(script, keys, args))
  }

  /** The same, but returns the raw bytes of the answer, which may not be valid UTF-8. */
  async runForBytes(script: Script, keys: readonly string[], args: readonly (string | Buffer)[]): Promise<Buffer[]> {
    return await this.#send<Buffer[]>(callOf(script, keys, args), rethrow, BYTES)
  }

  async #send<Answer>(
    command: readonly (string | Buffer)[],
    onError: (error: Error) => Answer = rethrow,
    options: Partial<typeof BYTES> = {},
  ): Promise<Answer> {
    if (this.#closed !== undefined) throw this.#closed
    if (this.#pending.size >= MAX_PENDING) throw new QueueFull('too many operations wait for Redis')
    const operation = { sentMs: performance.now() }
    this.#pending.add(operation)
    this.#watch()
    try {
      return await this.#client!.sendCommand<never>([...command], options).catch(onError)
    } catch (error) {
      // An error means that this is not the Redis that the scripts were loaded into, or that permissions have changed.
      this.#end(error as Error)
      throw this.#closed
    } finally {
      this.#pending.delete(operation)
    }
  }

  /** Rejects with a {@link NoRight} that names the permissions that links with this prefix need and the user lacks. */
  async checkRights(key: string, prefix: string): Promise<void> {
    const missing = await this.missingRights(key, prefix)
    if (missing.length === 0) return
    const error = new NoRight(`the user of Redis has no permission to ${missing.join(', ')}`)
    this.#end(error)
    throw error
  }

  /** The commands that the user may not run, with the key or channel that they need. */
  async missingRights(key: string, prefix: string): Promise<string[]> {
    const channels = CHANNELS.map(name => channelOf(this.#address.url, prefix, name))
    return await this.run<string[]>(RIGHTS, key, channels).catch(error => Promise.reject(named(error)))
  }

  /** Rejects if Redis accepts no writes beside this key. */
  async checkWrites(key: string): Promise<void> {
    await this.run(WRITE, `${key}:check`, [])
  }

  /** The fields of a hash, and their values. */
  async fields(key: string): Promise<Map<string, string>> {
    return new Map(Object.entries(await this.#send<Record<string, string>>(['HGETALL', key])))
  }

  /**
   * Ends the link if the key has moved to another node of the cluster, or if Redis has become a standby. Also if it accepts no writes since
   * it has lost its standbys: one of them may have taken over.
   */
  async check(key: string): Promise<void> {
    await this.#send<unknown>(callOf(WRITE, `${key}:check`, []), throwUnlessHere)
    const problem = standbyProblem(await this.#send<Hello>(HELLO))
    if (problem !== undefined) this.#end(problem)
    if (this.#closed !== undefined) throw this.#closed
  }

  /** Resolves to the number of receivers. Rejects like `run`. */
  publish(text: string): Promise<number> {
    return this.#send<number>(['PUBLISH', this.channel, text])
  }

  /** One timer, for the oldest operation. */
  #watch(): void {
    if (this.#timer !== undefined) return
    const [oldest] = this.#pending
    if (oldest === undefined) return
    const leftMs = oldest.sentMs + this.#deadlineMs - performance.now()
    this.#timer = setTimeout(this.#onDue, Math.max(1, leftMs)).unref()
  }

  readonly #onDue = this.#guard(() => {
    this.#timer = undefined
    const [oldest] = this.#pending
    if (oldest !== undefined && performance.now() - oldest.sentMs >= this.#deadlineMs) {
      this.#end(new Error('Redis does not answer'))
    } else this.#watch()
  })

  close(): void {
    this.#end(new Error('closed'))
  }

  #end(error: Error): void {
    if (this.#closed !== undefined) return
    this.#closed = isClosedByRedis(error) ? new ClosedByStore('Redis closed the connection', { cause: error }) : error
    clearTimeout(this.#timer)
    for (const client of this.#clients) endClient(client)
    this.#ending.reject(this.#closed)
    this.#listener.closed(this.#closed)
  }
}

function callOf<Arg>(script: Script, keys: string | readonly string[], args: readonly Arg[]): (string | Arg)[] {
  const all = [keys].flat()
  return ['EVALSHA', script.sha, String(all.length), ...all, ...args]
}

/** Tells errors by their first word, which is Redis's error kind. */
function named(error: Error): Error {
  return error.message.startsWith('NOPERM') ? new NoRight(error.message) : error
}

/** In a cluster, a standby says which node has the key. Elsewhere it would refuse every change. */
function standbyProblem({ mode, role }: Hello): Error | undefined {
  return mode === 'cluster' || role === 'master' ? undefined : new Error('this Redis is a standby')
}

/** A command that only the node that has the key answers. */
function lookFor(key: string): string[] {
  return ['HGET', key, '@born']
}

/** A key of the wrong type is on this node all the same, and the scripts will replace it. So are those of a node that is full. */
function throwUnlessHere(error: Error): void {
  if (!/^(?:WRONGTYPE|OOM|MISCONF)/.test(error.message)) throw error
}

function rethrow(error: Error): never {
  throw error
}
