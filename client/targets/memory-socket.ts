/**
 * Gives an in-memory connection the members of `request.socket` that applications, frameworks and Node's own server use. TCP
 * options do nothing, but the timeout works.
 */
import type { Duplex } from 'node:stream'
import { DeadlineWatch, due } from '../../protocol/base/deadline-watch.ts'
import { type Failing, guardWith } from '../../protocol/base/guard.ts'

/** Makes `end` look like a socket whose peer has this IPv4 address. `other` is the peer's end. `reset` destroys `end`, and tells the peer. */
export function asSocket(end: Duplex, other: Duplex, peerAddress: string, reset: () => void): void {
  const timeout = new IdleTimeout(end, other)
  const same = () => end
  const guard = guardWith(reset)
  const destroy = guard(() => end.destroy())
  const methods = {
    setTimeout: (ms: number, callback?: () => void) => {
      timeout.set(ms, callback)
      return end
    },
    setNoDelay: same,
    setKeepAlive: same,
    ref: same,
    unref: same,
    address: () => ({}),
    destroySoon: () => {
      end.end(destroy)
    },
    resetAndDestroy: () => {
      reset()
      return end
    },
  }
  Object.assign(end, methods, { remoteAddress: peerAddress, remoteFamily: 'IPv4', connecting: false, pending: false })
}

/** Emits `timeout` after inactivity in both directions, as `net.Socket` does. */
class IdleTimeout implements Failing {
  readonly #end: Duplex
  readonly #guard = guardWith(() => this.threw())
  readonly #watch = new DeadlineWatch(now => due(this.#activeAt, this.#ms, now, this.#onDue), this)
  /** The callback of the application, mapped to the guarded listener that stands in for it. */
  readonly #listeners = new WeakMap<() => void, () => void>()
  #ms = 0
  #activeAt = 0

  constructor(end: Duplex, other: Duplex) {
    this.#end = end
    for (const side of [end, other]) {
      const { _write } = side
      side._write = (chunk, encoding, callback) => {
        this.#active()
        _write.call(side, chunk, encoding, callback)
      }
    }
    const onClose = this.#guard(() => this.#watch.stop())
    end.once('close', onClose)
  }

  /** 0 turns the timeout off. */
  set(ms: number, callback: (() => void) | undefined): void {
    this.#ms = ms
    this.#active()
    if (callback === undefined) return
    const before = this.#listeners.get(callback)
    if (before !== undefined) this.#end.off('timeout', before)
    if (ms === 0) return
    const listener = this.#guard(callback)
    this.#listeners.set(callback, listener)
    this.#end.once('timeout', listener)
  }

  #active(): void {
    if (this.#ms === 0) return
    this.#activeAt = performance.now()
    this.#watch.within(this.#ms, this.#activeAt)
  }

  readonly #onDue = (): void => {
    this.#end.emit('timeout')
  }

  threw(): void {
    this.#end.destroy()
  }
}
