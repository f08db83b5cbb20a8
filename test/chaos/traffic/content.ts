/** The bytes of bodies: both ends know each byte without sending it, and no two labels have the same bytes. */
import { randomBytes } from 'node:crypto'

const BLOCK = randomBytes(1 << 20)

/** `bytes` bytes of the body with this label, starting at `from`. */
export function contentOf(label: string, bytes: number, from = 0): Buffer {
  const body = Buffer.allocUnsafe(bytes)
  const head = Buffer.from(`${label}\n`)
  const start = offsetOf(label)
  let done = from < head.length ? head.copy(body, 0, from) : 0
  while (done < bytes) {
    const at = (start + from + done) % BLOCK.length
    done += BLOCK.copy(body, done, at)
  }
  return body
}

/** Checks a body as it arrives. */
export class Expected {
  readonly #label: string
  readonly #bytes: number
  #seen = 0
  #problem: string | undefined

  constructor(label: string, bytes: number) {
    this.#label = label
    this.#bytes = bytes
  }

  get seen(): number {
    return this.#seen
  }

  data(chunk: Buffer): void {
    if (this.#problem === undefined && !chunk.equals(contentOf(this.#label, chunk.length, this.#seen))) {
      const said = this.#seen === 0 ? JSON.stringify(chunk.toString('latin1', 0, 60)) : 'other bytes'
      this.#problem = `${said} at ${this.#seen} in place of "${this.#label}"`
    }
    this.#seen += chunk.length
  }

  /** What was wrong with a body that has ended, or undefined. */
  end(): string | undefined {
    if (this.#problem === undefined && this.#seen !== this.#bytes)
      return `${this.#seen} bytes in place of ${this.#bytes}`
    return this.#problem
  }
}

function offsetOf(label: string): number {
  let hash = 0
  for (let i = 0; i < label.length; i++) hash = (Math.imul(hash, 31) + label.charCodeAt(i)) >>> 0
  return hash % BLOCK.length
}
