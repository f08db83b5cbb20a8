/** Reads HTTP/1.1 answers as they arrive. Throws for bytes that are not HTTP. */
const MOST_HEAD_BYTES = 65_536

type State = 'head' | 'fixed' | 'size' | 'chunk' | 'chunk-end' | 'trailers' | 'whole'

export class ResponseReader {
  status = 0
  /** `sallyport-error`, or an empty string if the answer is not ours. */
  code = ''
  /** Whether the connection ends after this answer. */
  isLast = false
  readonly #onData: (chunk: Buffer) => void
  #state: State = 'head'
  #held: Buffer = Buffer.alloc(0)
  #left = 0

  constructor(onData: (chunk: Buffer) => void) {
    this.#onData = onData
  }

  get hasBegun(): boolean {
    return this.#state !== 'head' || this.#held.length > 0
  }

  get isWhole(): boolean {
    return this.#state === 'whole'
  }

  push(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    while (this.#step());
    if (this.#state === 'whole' && this.#held.length > 0) throw new Error('bytes behind the answer')
  }

  /** Whether more of the held bytes may be read. */
  #step(): boolean {
    switch (this.#state) {
      case 'head':
        return this.#head()
      case 'fixed':
        return this.#body('whole')
      case 'chunk':
        return this.#body('chunk-end')
      case 'size':
        return this.#size()
      case 'chunk-end':
        if (this.#line() === undefined) return false
        this.#state = 'size'
        return true
      case 'trailers':
        return this.#trailers()
      case 'whole':
        return false
    }
  }

  #head(): boolean {
    const end = this.#held.indexOf('\r\n\r\n')
    if (end < 0) {
      if (this.#held.length > MOST_HEAD_BYTES) throw new Error('a head without an end')
      return false
    }
    const [start = '', ...lines] = this.#held.toString('latin1', 0, end).split('\r\n')
    this.#held = this.#held.subarray(end + 4)
    const [, status] = /^HTTP\/1\.1 (\d{3}) /.exec(start) ?? []
    if (status === undefined) throw new Error(`no status line: ${JSON.stringify(start.slice(0, 60))}`)
    this.status = Number(status)
    const fields = new Map(lines.map(line => splitField(line)))
    if (this.status < 200) return true
    this.code = fields.get('sallyport-error') ?? ''
    this.isLast = fields.get('connection') === 'close'
    if (fields.get('transfer-encoding') === 'chunked') {
      this.#state = 'size'
      return true
    }
    const length = fields.get('content-length')
    if (length === undefined) throw new Error('an answer without a length')
    this.#left = Number(length)
    this.#state = this.#left === 0 ? 'whole' : 'fixed'
    return true
  }

  #body(next: State): boolean {
    const part = this.#held.subarray(0, this.#left)
    this.#held = this.#held.subarray(part.length)
    this.#left -= part.length
    if (part.length > 0 && this.status === 200) this.#onData(part)
    if (this.#left > 0) return false
    this.#state = next
    return true
  }

  #size(): boolean {
    const line = this.#line()
    if (line === undefined) return false
    if (!/^[0-9a-f]+$/i.test(line)) throw new Error(`no chunk size: ${JSON.stringify(line)}`)
    this.#left = Number.parseInt(line, 16)
    this.#state = this.#left === 0 ? 'trailers' : 'chunk'
    return true
  }

  #trailers(): boolean {
    const line = this.#line()
    if (line === '') this.#state = 'whole'
    return line !== undefined
  }

  #line(): string | undefined {
    const end = this.#held.indexOf('\r\n')
    if (end < 0) return undefined
    const line = this.#held.toString('latin1', 0, end)
    this.#held = this.#held.subarray(end + 2)
    return line
  }
}

function splitField(line: string): [string, string] {
  const colon = line.indexOf(':')
  return [
    line.slice(0, colon).toLowerCase(),
    line
      .slice(colon + 1)
      .trim()
      .toLowerCase(),
  ]
}
