import { Greediest, shareName } from '../../base/greediest.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** What callers of one network have left unread of one runtime. */
class Share {
  readonly owner: string
  readonly network: string
  bytes = 0
  readonly #streams: YamuxStream[] = []
  #sorted = false

  constructor({ runtime, network }: YamuxStream) {
    this.owner = runtime
    this.network = network
  }

  add(stream: YamuxStream): void {
    this.bytes += stream.unreadBytes
    this.#streams.push(stream)
  }

  /** Removes and returns the stream to be reset next. One that is over waits only for a slow caller, so its bytes go first. */
  take(): YamuxStream {
    if (!this.#sorted) {
      this.#sorted = true
      this.#streams.sort((a, b) => Number(a.closed) - Number(b.closed) || a.unreadBytes - b.unreadBytes)
    }
    const stream = this.#streams.pop()!
    // The reset of another stream may have ended its session. Then, it holds less than was counted.
    this.bytes = this.#streams.length === 0 ? 0 : this.bytes - stream.unreadBytes
    return stream
  }
}

function sharesOf(streams: Iterable<YamuxStream>): Iterable<Share> {
  const shares = new Map<string, Share>()
  for (const stream of streams) {
    if (stream.unreadBytes === 0) continue
    const name = shareName(stream.runtime, stream.network)
    let share = shares.get(name)
    if (share === undefined) {
      share = new Share(stream)
      shares.set(name, share)
    }
    share.add(stream)
  }
  return shares.values()
}

/**
 * Resets streams until `held` is less by `bytes` or none is left: those of the runtime, or of the network of callers (as for quotas), that
 * holds most, where it holds most. So whoever fills it loses. Returns by how much `held` is less.
 */
export function shedStreams(
  held: { readonly usedBytes: number },
  streams: Iterable<YamuxStream>,
  bytes: number,
): number {
  const greediest = new Greediest(sharesOf(streams))
  const before = held.usedBytes
  while (before - held.usedBytes < bytes) {
    const { share } = greediest
    if (share === undefined || share.bytes === 0) break
    const shareBytes = share.bytes
    const stream = share.take()
    greediest.gaveUp(share, shareBytes - share.bytes)
    if (stream.unreadBytes > 0) stream.session.shedStream(stream)
  }
  return before - held.usedBytes
}
