/**
 * The replica that has the session, for an exchange that another replica took: after the preamble is checked the bytes
 * pass as they are, and credit with them.
 *
 *     other replica ──stream──▶ preamble? ──stream of the session──▶ client
 */

import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import { type Cidrs, cidrsContain } from '../../protocol/http/forwarded.ts'
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
  /** It gets an attempt of the other replica, which wants its spans. */
  gaveFor(of: string, tell: TellReplica): void
  released(): void
}

export interface SpliceOwner {
  /** A session on this epoch, if this replica may serve the runtime on it. `ownHost`: one whose token names it. */
  pick(runtime: string, epoch: number, ownHost?: string): SplicedSession | undefined
  /** The session behind a stream leaves. */
  leave(stream: Stream): void
  readonly tell: TellReplica
}

/** The most that a preamble takes, with kind and length. */
const MAX_HEAD_BYTES = MAX_PREAMBLE_BYTES + 16

/** Takes a stream that another replica opened. */
export function splice(stream: Stream, owner: SpliceOwner): void {
  // Until the client has it, it may refuse the exchange unread. The edge keeps the body for that, and must not be told too early.
  stream.withholdAcknowledgement()
  stream.handler = new Splice(stream, owner)
}

class Splice implements StreamHandler, Failing {
  static readonly #late = stepOf<Splice>(splice => splice.#stopLate())
  readonly #from: Stream
  readonly #owner: SpliceOwner
  #to: Stream | undefined
  #session: SplicedSession | undefined
  /** What came of a preamble that is not whole yet. */
  #begun: Uint8Array | undefined
  #refused = false
  #switches = false
  /** The whole answer has come, so the end of the session cuts nothing of it. */
  #answered = false
  #timer: NodeJS.Timeout | undefined

  constructor(from: Stream, owner: SpliceOwner) {
    this.#from = from
    this.#owner = owner
  }

  data(chunk: Uint8Array): void {
    if (this.#to?.closed || this.#refused) this.#from.consumed(chunk.length)
    else if (this.#to !== undefined) {
      this.#to.write(chunk)
      this.#releaseIfPassed()
    } else this.#begin(this.#begun === undefined ? chunk : Buffer.concat([this.#begun, chunk]))
  }

  end(): void {
    if (this.#to !== undefined) this.#to.end()
    else if (!this.#refused) this.#refuse('malformed', this.#begun?.length)
    clearTimeout(this.#timer)
  }

  /** Nobody takes the answer any more. What came of it is dropped, whole or not. */
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
      /** The answer came whole, and waits for the other replica. */
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
        else this.#breakOff(code)
      },
      shed: () => this.#breakOff('limit'),
      consumed: bytes => from.consumed(bytes),
      leave: () => this.#owner.leave(from),
    }
  }

  /** The answer came whole, and nothing more of the request is taken: the other replica hears of it behind the answer. */
  #stopFrom(): void {
    this.#from.discard()
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

  /** The exchange is over when the whole answer has left: a session that waits for it may take this replica with it. */
  #releaseIfPassed(): void {
    if (!this.#answered || this.#from.queuedBytes > 0) return
    this.#release()
    // Nobody waits for the part of the request that the client has not taken.
    if (this.#switches || this.#to!.queuedBytes === 0) return
    this.#to!.reset('cancelled')
    this.#from.discard()
  }

  /** The session has one exchange less. */
  #release(): void {
    const session = this.#session
    this.#session = undefined
    session?.released()
  }

  /** Nothing was forwarded. */
  #refuse(code: RefusalCode, bytes = 0): void {
    this.#refused = true
    this.#begun = undefined
    this.#from.acknowledge()
    this.#from.write(Buffer.from(varintText(ANSWER.refused) + varintText(REFUSALS[code]), 'latin1'))
    this.#from.end()
    if (bytes > 0) this.#from.consumed(bytes)
    this.#timer = setTimeout(Splice.#late, EARLY_ANSWER_MS, this).unref()
  }

  /** It was refused: there is nothing left to end. */
  threw(): void {}
}
