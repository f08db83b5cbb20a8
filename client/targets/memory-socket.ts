/**
 * What applications, frameworks and Node's own server ask of `request.socket`, for an end of a connection in memory: options
 * of TCP mean nothing to it, and its timeout is a real one.
 */
import type { Duplex } from 'node:stream'
import type { Failing } from '../../protocol/guard.ts'
import { due, Watch } from '../../protocol/watch.ts'

/** Makes `end` look like a socket whose peer has this IPv4 address. */
export function asSocket(end: Duplex, peerAddress: string): void {
  const timeout = new IdleTimeout(end)
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
  readonly #watch = new Watch(now => due(this.#activeAt, this.#ms, now, this.#onDue), this)
  #ms = 0
  #activeAt = 0

  constructor(end: Duplex) {
    this.#end = end
    const { push, _write } = end
    end.push = (chunk, encoding) => {
      this.#active()
      return push.call(end, chunk, encoding)
    }
    end._write = (chunk, encoding, callback) => {
      this.#active()
      _write.call(end, chunk, encoding, callback)
    }
    end.once('close', () => this.#watch.stop())
  }

  /** 0: never. */
  set(ms: number, callback: (() => void) | undefined): void {
    this.#ms = ms
    this.#active()
    if (callback === undefined) return
    if (ms === 0) this.#end.off('timeout', callback)
    else this.#end.once('timeout', callback)
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
