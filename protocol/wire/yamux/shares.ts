import { networkOf } from '../../base/address.ts'
import type { YamuxStream } from './yamux-stream.ts'

class Share {
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

/**
 * Counts who holds how many of the waiting bytes of a session, so that whoever fills it loses them. It finds the runtime that
 * holds the most, its caller that holds the most (by network, as for quotas), and the largest stream of that caller.
 */
export class Shares {
  readonly #runtimes = new Map<string, Map<string, Share>>()

  add(stream: YamuxStream): void {
    if (stream.unreadBytes === 0) return
    let callers = this.#runtimes.get(stream.runtime)
    if (callers === undefined) {
      callers = new Map()
      this.#runtimes.set(stream.runtime, callers)
    }
    const caller = networkOf(stream.caller)
    let share = callers.get(caller)
    if (share === undefined) {
      share = new Share()
      callers.set(caller, share)
    }
    share.add(stream)
  }

  /** Removes and returns the stream to be reset next. */
  take(): YamuxStream | undefined {
    const callers = greediest(this.#runtimes.values(), bytesOf)
    return callers && greediest(callers.values(), share => share.bytes)?.take()
  }
}

function bytesOf(callers: Map<string, Share>): number {
  let bytes = 0
  for (const share of callers.values()) bytes += share.bytes
  return bytes
}

function greediest<T>(all: Iterable<T>, bytes: (one: T) => number): T | undefined {
  let most: T | undefined
  let mostBytes = 0
  for (const one of all) {
    const held = bytes(one)
    if (held <= mostBytes) continue
    most = one
    mostBytes = held
  }
  return most
}
