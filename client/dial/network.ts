/** Notices that this machine's network has changed, or that the machine has slept. */
import { networkInterfaces } from 'node:os'
import type { Guard } from '../../protocol/base/guard.ts'

interface NetworkWatchOptions {
  readonly guard: Guard
  /** `lost`: addresses that the machine had, and has no more. */
  readonly onChange: (reason: string, lost: ReadonlySet<string>) => void
  /** The clock on the wall was set back by so much. */
  readonly onSetBack: (byMs: number) => void
  /** Default `os.networkInterfaces`; for tests. */
  readonly interfaces?: typeof networkInterfaces | undefined
  /** Ms since 1970. Default `Date.now`. */
  readonly wallClock?: (() => number) | undefined
}

/** Some 50 us of work each time. */
const LOOK_MS = 1000
/** A look that comes so much later than it should by the clock on the wall: the machine slept, or this process did. */
const SLEPT_MS = 5000

/** Addresses of one link alone come and go with every container of a machine. */
const ONE_LINK = /^(?:fe80:|169\.254\.)/i

export class NetworkWatch {
  readonly #options: NetworkWatchOptions
  readonly #timer: NodeJS.Timeout
  #addresses: ReadonlySet<string>
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
    const slept = jumpMs >= SLEPT_MS
    this.#lookedMs = nowMs
    if (jumpMs <= -SLEPT_MS) this.#options.onSetBack(-jumpMs)
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
      return new Set(all.map(({ address }) => address).filter(address => !ONE_LINK.test(address)))
    } catch {
      // A sandbox may not let us look (AF_NETLINK); then only sleep is noticed.
      return new Set()
    }
  }
}
