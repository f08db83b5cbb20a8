/** Notices when the network of this machine has changed, or when the machine has slept. */
import { networkInterfaces } from 'node:os'
import type { Guard } from '../../protocol/base/guard.ts'

interface NetworkWatchOptions {
  readonly guard: Guard
  /** `lost`: addresses that the machine no longer has. */
  readonly onChange: (reason: string, lost: ReadonlySet<string>) => void
  /** The clock was set back by this much. */
  readonly onSetBack: (byMs: number) => void
  /** Default `os.networkInterfaces`; for tests. */
  readonly interfaces?: typeof networkInterfaces | undefined
  /** Ms since 1970. Default `Date.now`. */
  readonly wallClock?: (() => number) | undefined
}

/** Each look takes about 50 µs. */
const LOOK_MS = 1000
/** If a look is this late by the wall clock, the machine or this process slept. */
const MIN_SLEEP_MS = 5000

/** Link-local addresses are ignored: they come and go with every container of a machine. */
const LINK_LOCAL = /^(?:fe80:|169\.254\.)/i

export class NetworkWatch {
  readonly #options: NetworkWatchOptions
  readonly #timer: NodeJS.Timeout
  #addresses: ReadonlySet<string> = new Set()
  #lookedMs: number

  constructor(options: NetworkWatchOptions) {
    this.#options = options
    this.#addresses = this.#read()
    this.#lookedMs = this.#now()
    this.#timer = setInterval(
      options.guard(() => this.#look()),
      LOOK_MS,
    )
    this.#timer.unref()
  }

  close(): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    const nowMs = this.#now()
    const jumpMs = nowMs - this.#lookedMs - LOOK_MS
    const slept = jumpMs >= MIN_SLEEP_MS
    this.#lookedMs = nowMs
    if (jumpMs <= -MIN_SLEEP_MS) this.#options.onSetBack(-jumpMs)
    const before = this.#addresses
    this.#addresses = this.#read()
    const lost = new Set([...before].filter(address => !this.#addresses.has(address)))
    if (lost.size > 0 || before.size < this.#addresses.size) this.#options.onChange('the network has changed', lost)
    else if (slept) this.#options.onChange('this machine has slept', lost)
  }

  #now(): number {
    return (this.#options.wallClock ?? Date.now)()
  }

  #read(): ReadonlySet<string> {
    try {
      const all = Object.values((this.#options.interfaces ?? networkInterfaces)()).flatMap(list => list ?? [])
      return new Set(all.map(({ address }) => address).filter(address => !LINK_LOCAL.test(address)))
    } catch {
      // A sandbox may forbid this (AF_NETLINK), or no file descriptor is left. Then only sleep is noticed.
      return this.#addresses
    }
  }
}
