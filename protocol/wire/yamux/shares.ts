import { Falling } from '../../base/falling.ts'
import { Tally } from '../../base/tally.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** Whoever holds some of the waiting bytes. */
interface Holder {
  readonly bytes: number
  /** Removes and returns its stream to be reset next. */
  take(): YamuxStream | undefined
}

class Caller implements Holder {
  bytes = 0
  readonly #streams: YamuxStream[] = []
  #sorted = false

  add(stream: YamuxStream): void {
    this.bytes += stream.unreadBytes
    this.#streams.push(stream)
  }

  /** A stream that is over waits only for a slow caller, so its bytes go first. */
  take(): YamuxStream | undefined {
    if (!this.#sorted) {
      this.#sorted = true
      this.#streams.sort((a, b) => Number(a.closed) - Number(b.closed) || a.unreadBytes - b.unreadBytes)
    }
    const stream = this.#streams.pop()
    this.bytes = stream === undefined ? 0 : this.bytes - stream.unreadBytes
    return stream
  }
}

/** Holders by name. */
class Holders<One extends Holder> implements Holder {
  bytes = 0
  readonly #make: () => One
  readonly #byName = new Map<string, One>()
  #falling: Falling<One> | undefined

  constructor(make: () => One) {
    this.#make = make
  }

  of(name: string): One {
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    const made = this.#make()
    this.#byName.set(name, made)
    return made
  }

  /** Call it when all are known. */
  get #most(): One | undefined {
    this.#falling ??= new Falling(this.#byName.values())
    return this.#falling.most
  }

  /** What the one that holds the most holds. */
  get mostBytes(): number {
    return this.#most?.bytes ?? 0
  }

  take(): YamuxStream | undefined {
    const most = this.#most
    if (most === undefined || most.bytes <= 0) return undefined
    const before = most.bytes
    const stream = most.take()
    this.bytes -= before - most.bytes
    return stream
  }
}

/**
 * Counts who holds how many of the waiting bytes of a session, so that whoever fills it loses them. It finds the runtime that
 * holds the most, its caller that holds the most (by network, as for quotas), and the largest stream of that caller.
 */
export class Shares {
  readonly #runtimes = new Holders(() => new Holders(() => new Caller()))

  add(stream: YamuxStream): void {
    if (stream.unreadBytes === 0) return
    const callers = this.#runtimes.of(stream.runtime)
    callers.bytes += stream.unreadBytes
    callers.of(stream.network).add(stream)
  }

  /** Removes and returns the stream to be reset next. */
  take(): YamuxStream | undefined {
    return this.#runtimes.take()
  }

  /** Resets one stream after the other, until `held` is less by `bytes` or none is left. Returns by how much it is less. */
  shed(held: { readonly usedBytes: number }, bytes: number): number {
    const before = held.usedBytes
    while (before - held.usedBytes < bytes) {
      const stream = this.take()
      if (stream === undefined) break
      stream.session.shedStream(stream)
    }
    return before - held.usedBytes
  }
}

/**
 * Sheds up to `bytes`, as long as a network of callers holds more over all runtimes than any runtime does. It loses streams where it holds
 * the most. Returns by how much `held` is less.
 */
export function shedNetworks(
  held: { readonly usedBytes: number },
  streams: Iterable<YamuxStream>,
  bytes: number,
): number {
  const runtimes = new Tally()
  const networks = new Tally()
  const unread: YamuxStream[] = []
  for (const stream of streams) {
    const { runtime, network, unreadBytes } = stream
    if (unreadBytes === 0) continue
    unread.push(stream)
    runtimes.add(runtime, unreadBytes)
    networks.add(network, unreadBytes)
  }
  const { most } = runtimes
  if (networks.most <= most) return 0
  const greedy = new Holders(() => new Holders(() => new Caller()))
  for (const stream of unread) {
    if (networks.of(stream.network) <= most) continue
    const byRuntime = greedy.of(stream.network)
    byRuntime.bytes += stream.unreadBytes
    byRuntime.of(stream.runtime).add(stream)
  }
  const before = held.usedBytes
  while (before - held.usedBytes < bytes && greedy.mostBytes > most) {
    const stream = greedy.take()
    // A reset may have ended a session, and so all of its streams.
    if (stream !== undefined && stream.unreadBytes > 0) stream.session.shedStream(stream)
  }
  return before - held.usedBytes
}

/** Sheds `bytes`, if there are several runtimes first of networks. Returns by how much `held` is less. */
export function shedStreams(
  held: { readonly usedBytes: number; streams(): Iterable<YamuxStream> },
  bytes: number,
  hasRuntimes: boolean,
): number {
  const freed = hasRuntimes ? shedNetworks(held, held.streams(), bytes) : 0
  if (freed >= bytes) return freed
  const shares = new Shares()
  for (const stream of held.streams()) shares.add(stream)
  return freed + shares.shed(held, bytes - freed)
}
