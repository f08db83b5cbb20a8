/** Reads heads from the received bytes of a connection: a complete one at once, one that arrives in pieces line by line. */
import type { Buffer } from 'node:buffer'
import type { ByteCache } from '../../base/byte-cache.ts'
import { HEAD_END, LF } from './bytes.ts'
import { type Head, type HeadLimits, HeadParser } from './head-parser.ts'

/** Reused for all heads of one connection. */
export class HeadReader {
  /** Offset after the head that was read last, including its empty line. */
  end = 0
  readonly #limits: HeadLimits
  readonly #parser: HeadParser
  readonly #seen: ByteCache<Head> | undefined
  /** How much of an incomplete head has been checked, in whole lines. */
  #checkedBytes = 0

  /** `seen` holds heads of earlier final responses, which `read` may return again. */
  constructor(limits: HeadLimits, response: boolean, seen?: ByteCache<Head>) {
    this.#limits = limits
    this.#parser = new HeadParser(limits, response)
    this.#seen = seen
  }

  /**
   * Returns the head that begins at `start`, or undefined while it is incomplete. The part that has arrived is checked already, so
   * that a refusal need not wait for the rest. Throws SallyportError for a head that is malformed or too large.
   */
  read(bytes: Buffer, start: number): Head | undefined {
    const end = bytes.indexOf(HEAD_END, start)
    if (end < 0) {
      const lines = bytes.lastIndexOf(LF) + 1
      const long = bytes.length - start > this.#limits.headBytes
      // Once per line, since a head can come byte by byte.
      if (long || lines <= start || lines !== this.#checkedBytes) this.#parse(bytes, start, lines, bytes.length)
      this.#parser.take()
      this.#checkedBytes = lines
      return undefined
    }
    this.#checkedBytes = 0
    this.end = end + HEAD_END.length
    const seen = this.#seen?.find(bytes, start, end)
    if (seen !== undefined) return seen
    this.#parse(bytes, start, end + 2, end)
    const head = this.#parser.take()
    if (head.status >= 200) this.#seen?.keep(bytes, start, end, head)
    return head
  }

  /** Parses the whole lines, which end at `lines`. The first line is parsed even if only a part of it has arrived. */
  #parse(bytes: Buffer, start: number, lines: number, end: number): void {
    const parser = this.#parser
    parser.start()
    const fields = parser.startLine(bytes, start, lines > start ? lines : end)
    if (end - start > this.#limits.headBytes) throw parser.fault('head-too-large', 'too large')
    if (lines <= start) return
    if (fields < 0) throw parser.fault('bad-request', 'start line')
    parser.fields(bytes, fields, lines)
  }
}
