/** Reads heads from what has come of a connection: a whole one at once, one that comes in pieces line by line. */
import type { Buffer } from 'node:buffer'
import type { ByteCache } from '../../base/byte-cache.ts'
import { HEAD_END, LF } from './bytes.ts'
import { type Head, type HeadLimits, HeadParser } from './head-parser.ts'

/** Reused for all heads of one connection. */
export class HeadReader {
  /** Where the head that was read last ends, behind its empty line. */
  end = 0
  readonly #limits: HeadLimits
  readonly #parser: HeadParser
  readonly #seen: ByteCache<Head> | undefined
  /** How much of a head that is not whole was checked, in whole lines. */
  #checkedBytes = 0

  /** `seen` has heads of final responses that came before, which `read` may return again. */
  constructor(limits: HeadLimits, response: boolean, seen?: ByteCache<Head>) {
    this.#limits = limits
    this.#parser = new HeadParser(limits, response)
    this.#seen = seen
  }

  /**
   * The head that begins at `start`, or undefined while it is not whole. What is there by then is checked already, so that a
   * refusal need not wait for the rest. Throws SallyportError for a head that is malformed or too large.
   */
  read(bytes: Buffer, start: number): Head | undefined {
    const end = bytes.indexOf(HEAD_END, start)
    if (end < 0) {
      const lines = bytes.lastIndexOf(LF) + 1
      const long = bytes.length - start > this.#limits.headBytes
      // Once for each line, since a head can come byte by byte.
      if (long || lines <= start || lines !== this.#checkedBytes) this.#parse(bytes, start, lines, bytes.length)
      this.#checkedBytes = lines
      return undefined
    }
    this.#checkedBytes = 0
    this.end = end + HEAD_END.length
    const seen = this.#seen?.find(bytes, start, end)
    if (seen !== undefined) return seen
    this.#parse(bytes, start, end + 2, end)
    const { head } = this.#parser
    if (head.status >= 200) this.#seen?.keep(bytes, start, end, head)
    return head
  }

  /** Parses the whole lines, which end at `lines`, and of the first line also a part. */
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
