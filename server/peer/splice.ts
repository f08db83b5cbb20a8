/**
 * Connects an exchange that another replica hands over to a session here. Once the preamble is checked, bytes and credit pass through
 * unchanged.
 *
 *     other replica ──stream──▶ preamble? ──stream of the session──▶ client
 */

import { type Cidrs, cidrsContain } from '../../protocol/base/address.ts'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import { ANSWER, EARLY_ANSWER_MS } from '../../protocol/wire/exchange/answer.ts'
import { REFUSALS, type RefusalCode } from '../../protocol/wire/exchange/refusal.ts'
import { decodePreamble, MAX_PREAMBLE_BYTES, type Preamble, preambleEnd } from '../../protocol/wire/preamble.ts'
import { STREAM_RULES } from '../../protocol/wire/stream-kinds.ts'
import { varintText } from '../../protocol/wire/varint.ts'
import type { ResetCode, Stream, StreamHandler } from '../../protocol/wire/yamux/stream.ts'
import type { TellReplica } from '../control/returned-spans.ts'

/** A session of this replica. */
export interface SplicedSession {
  readonly callers: Cidrs | undefined
  exchanges: number
  open(): Stream
  /** Called for a recorded attempt of the other replica, which gets the spans. */
  gaveFor(of: string, tell: TellReplica): void
  released(): void
}

export interface SpliceOwner {
  /** A session on this epoch, if this replica may serve the runtime on it. With `ownHost`, only one whose token names that host. */
  pick(runtime: string, epoch: number, ownHost?: string): SplicedSession | undefined
  /** Called when the session behind a stream is about to end. */
  leave(stream: Stream): void
  readonly tell: TellReplica
}

/** Maximum size of a preamble, with its kind and length. */
const MAX_HEAD_BYTES = MAX_PREAMBLE_BYTES + 16

/** Handles a stream that another replica opened. */
export function splice(stream: Stream, owner: SpliceOwner): void {
  // Until the client has acknowledged its stream, it may refuse the exchange unread. The edge keeps the body until then, so we must not
  // acknowledge earlier.
  stream.withholdAcknowledgement()
  stream.handler = new Splice(stream, owner)
}

class Splice implements StreamHandler, Failing {
  static readonly #late = stepOf<Splice>(splice => splice.#stopLate())
  readonly #from: Stream
  readonly #owner: SpliceOwner
  #to: Stream | undefined
  #session: SplicedSession | undefined
  /** The received part of an incomplete preamble. */
  #begun: Uint8Array | undefined
  #refused = false
  #switches = false
  /** The whole answer has been received, so the end of the session does not affect it. */
  #answered = false
  /** The whole request has been received. */
  #asked = false
  #timer: NodeJS.Timeout | undefined

  constructor(from: Stream, owner: SpliceOwner) {
    this.#from = from
    this.#owner = owner
  }

  get unbegun(): boolean {
    return this.#to?.unsent !== false
  }

  data(chunk: Uint8Array): void {
    if (this.#to?.closed || this.#refused) this.#from.consumed(chunk.length)
    else if (this.#to !== undefined) {
      this.#to.write(chunk)
      this.#releaseIfPassed()
    } else this.#begin(this.#begun === undefined ? chunk : Buffer.concat([this.#begun, chunk]))
  }

  end(): void {
    this.#asked = true
    if (this.#to !== undefined) {
      this.#to.end()
      this.#releaseIfPassed()
    } else if (!this.#refused) this.#refuse('malformed', this.#begun?.length)
    clearTimeout(this.#timer)
  }

  /** Nobody wants the answer any more. What was received of it is dropped. */
  reset(code: ResetCode): void {
    clearTimeout(this.#timer)
    this.#to?.reset(code)
    this.#to?.discard()
    this.#release()
  }

  consumed(bytes: number): void {
    this.#to?.consumed(bytes)
    this.#releaseIfPassed()
  }

  #begin(bytes: Uint8Array): void {
    let preamble: Preamble
    try {
      const end = preambleEnd(bytes, 0, bytes.length)
      if (end < 0 && bytes.length < MAX_HEAD_BYTES) {
        this.#begun = bytes
        return
      }
      preamble = decodePreamble(bytes, 0, end)
    } catch {
      this.#refuse('malformed', bytes.length)
      return
    }
    this.#begun = undefined
    const refusal = this.#open(preamble)
    if (refusal === undefined) this.#to!.write(bytes)
    else this.#refuse(refusal, bytes.length)
  }

  #open({ kind, hops, runtime, epoch, callerAddress, span, ownHost }: Preamble): RefusalCode | undefined {
    this.#from.paidBy(runtime, callerAddress)
    if (hops !== 1) return 'not-here'
    const session = this.#owner.pick(runtime, epoch, ownHost)
    if (session === undefined) return this.#owner.pick(runtime, epoch) === undefined ? 'not-here' : 'not-its-host'
    if (session.callers !== undefined && !cidrsContain(session.callers, callerAddress)) return 'caller-not-allowed'
    try {
      this.#to = session.open()
    } catch {
      return 'overloaded'
    }
    this.#to.paidBy(runtime, callerAddress)
    this.#session = session
    session.exchanges++
    if (span !== undefined) session.gaveFor(span, this.#owner.tell)
    this.#to.handler = this.#back()
    this.#switches = STREAM_RULES[kind].switches
    return undefined
  }

  #back(): StreamHandler {
    const from = this.#from
    const splice = this
    return {
      /** The answer is complete, and waits for the other replica to read it. */
      get keeps() {
        return splice.#answered
      },
      acknowledged: () => from.acknowledge(),
      data: chunk => from.write(chunk),
      end: () => {
        this.#answered = true
        from.end()
        this.#releaseIfPassed()
      },
      reset: code => {
        if (this.#answered) this.#stopFrom()
        else this.#breakOff(this.#to!.unsent ? 'refused' : code)
      },
      shed: () => this.#breakOff('limit'),
      consumed: bytes => from.consumed(bytes),
      leave: () => this.#owner.leave(from),
    }
  }

  /** The answer is complete, and no more of the request is accepted. The other replica learns that after it has read the answer. */
  #stopFrom(): void {
    this.#from.discard()
    this.#releaseIfPassed()
    clearTimeout(this.#timer)
    if (!this.#from.closed) this.#timer = setTimeout(Splice.#late, EARLY_ANSWER_MS, this).unref()
  }

  #stopLate(): void {
    if (this.#from.queuedBytes > 0) this.#stopFrom()
    else this.#from.reset('cancelled')
  }

  #breakOff(code: ResetCode): void {
    clearTimeout(this.#timer)
    this.#from.reset(code)
    this.#release()
  }

  /**
   * Only when the whole answer has been sent is the exchange over, and that of an upgraded connection only when the caller has ended its half
   * as well. A draining session waits for that, and this process for the session.
   */
  #releaseIfPassed(): void {
    if (!this.#answered || this.#from.queuedBytes > 0) return
    if (this.#switches && !this.#asked && !this.#to!.closed) return
    this.#release()
    // Nobody needs the part of the request that the client has not read.
    if (this.#switches || this.#to!.queuedBytes === 0) return
    this.#to!.reset('cancelled')
    this.#from.discard()
  }

  /** Releases the session. */
  #release(): void {
    const session = this.#session
    this.#session = undefined
    session?.released()
  }

  /** Refuses the exchange. Nothing was forwarded. */
  #refuse(code: RefusalCode, bytes = 0): void {
    this.#refused = true
    this.#begun = undefined
    this.#from.acknowledge()
    this.#from.write(Buffer.from(varintText(ANSWER.refused) + varintText(REFUSALS[code]), 'latin1'))
    this.#from.end()
    if (bytes > 0) this.#from.consumed(bytes)
    this.#timer = setTimeout(Splice.#late, EARLY_ANSWER_MS, this).unref()
  }

  /** The timer runs only once the exchange was refused or answered, so there is nothing left to end. */
  threw(): void {}
}
