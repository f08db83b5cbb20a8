/**
 * What applications, frameworks and Node's own server ask of `request.socket`, for an end of a connection in memory: options
 * of TCP mean nothing to it, and its timeout is a real one.
 */
import type { Duplex } from 'node:stream'
import { DeadlineWatch, due } from '../../protocol/base/deadline-watch.ts'
import { type Failing, guardWith } from '../../protocol/base/guard.ts'

/** Makes `end` look like a socket whose peer has this IPv4 address; `other` is the end that the peer has. */
export function asSocket(end: Duplex, other: Duplex, peerAddress: string): void {
  const timeout = new IdleTimeout(end, other)
  const same = () => end
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
    destroySoon: () => end.end(),
    resetAndDestroy: () => end.destroy(),
  }
  Object.assign(end, methods, { remoteAddress: peerAddress, remoteFamily: 'IPv4', connecting: false, pending: false })
}

/** Emits `timeout` when nothing has gone either way for so long, as `net.Socket` does. */
class IdleTimeout implements Failing {
  readonly #end: Duplex
  readonly #guard = guardWith(() => this.threw())
  readonly #watch = new DeadlineWatch(now => due(this.#activeAt, this.#ms, now, this.#onDue), this)
  /** What the application gave, and what is called in its place. */
  readonly #heard = new WeakMap<() => void, () => void>()
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

  /** 0: never. */
  set(ms: number, callback: (() => void) | undefined): void {
    this.#ms = ms
    this.#active()
    if (callback === undefined) return
    const before = this.#heard.get(callback)
    if (before !== undefined) this.#end.off('timeout', before)
    if (ms === 0) return
    const heard = this.#guard(callback)
    this.#heard.set(callback, heard)
    this.#end.once('timeout', heard)
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
