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
 * Counts who holds how many of the bytes that wait in a session, so that whoever fills it pays. It finds the runtime that holds
 * most, the caller of it that holds most (by network, as quotas count them), and the largest stream of that caller.
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

  /** The stream to be reset next; it is not named again. */
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
