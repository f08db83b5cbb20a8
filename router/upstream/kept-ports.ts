/**
 * Local ports that are taken for a minute after connections to targets (TIME_WAIT). The kernel keeps the port of a connection whose end was
 * sent first by us, and all callers share the ports from which one address can be dialled.
 */
import { performance } from 'node:perf_hooks'
import { isLoopback, networkOf } from '../../protocol/base/address.ts'
import { readPlainSync } from '../../protocol/base/plain-file.ts'
import { Tally } from '../../protocol/base/tally.ts'

const KEPT_MS = 60_000
/** Most ports that are remembered. Of more than that, the oldest are forgotten; Linux keeps not many more either (`tcp_max_tw_buckets`). */
const MOST_KEPT = 65_536
/**
 * How many ports a network may keep for each one that is free. Alone it gets three quarters of them, so others are left a quarter. The more
 * networks keep, the less each of them may keep, and some are left for the next one.
 */
const KEPT_PER_FREE = 3

interface Kept {
  readonly address: string
  /** Of the caller, and the address. */
  readonly network: string
  readonly until: number
  next: Kept | undefined
}

/** The far end of a connection. */
interface Peer {
  readonly remoteAddress?: string | undefined
  readonly remotePort?: number | undefined
}

export class KeptPorts {
  /** From which one address can be dialled. */
  readonly #ports: number
  /** As `tcp_tw_reuse`: the kernel uses kept ports again always (1), or on this machine (2). */
  readonly #reuse: number
  readonly #counts = new Tally()
  #oldest: Kept | undefined
  #newest: Kept | undefined
  #size = 0

  constructor([ports, reuse]: readonly [number, number] = settings()) {
    this.#ports = ports
    this.#reuse = reuse
  }

  /** A connection to `address` has ended, which `caller` used last. */
  add(address: string, caller: string, now = performance.now()): void {
    const kept = { address, network: networkAt(address, caller), until: now + KEPT_MS, next: undefined }
    if (this.#oldest === undefined) this.#oldest = kept
    else this.#newest!.next = kept
    this.#newest = kept
    this.#change(kept, 1)
    this.#forget(now)
  }

  /** Whether the network of `caller` keeps too many of the ports of `address`, of which `open` are in use. */
  refuses(caller: string, address: string, open: number, now = performance.now()): boolean {
    this.#forget(now)
    const own = this.#counts.of(networkAt(address, caller))
    return own > 0 && own >= KEPT_PER_FREE * (this.#ports - open - this.#counts.of(address))
  }

  /** The address of `peer`. Undefined if the kernel uses its ports again. */
  addressOf({ remoteAddress = '', remotePort }: Peer): string | undefined {
    const isReused = this.#reuse === 1 || (this.#reuse === 2 && isLoopback(remoteAddress))
    return isReused ? undefined : `${remoteAddress} ${remotePort}`
  }

  #forget(now: number): void {
    while (this.#oldest !== undefined && (this.#oldest.until <= now || this.#size > MOST_KEPT)) {
      this.#change(this.#oldest, -1)
      this.#oldest = this.#oldest.next
    }
  }

  #change({ address, network }: Kept, by: number): void {
    this.#counts.add(address, by)
    this.#counts.add(network, by)
    this.#size += by
  }
}

function networkAt(address: string, caller: string): string {
  return `${address} ${networkOf(caller)}`
}

/** Of Linux. Elsewhere, ports are not counted. */
function settings(): readonly [ports: number, reuse: number] {
  try {
    const read = (name: string) =>
      readPlainSync(`/proc/sys/net/ipv4/${name}`, 64).toString().trim().split(/\s+/).map(Number)
    const [first, last] = read('ip_local_port_range')
    return [last! - first! + 1, read('tcp_tw_reuse')[0]!]
  } catch {
    return [Number.POSITIVE_INFINITY, 1]
  }
}
