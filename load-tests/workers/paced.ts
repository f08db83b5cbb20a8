/**
 * Requests at a fixed rate over HTTP/1.1, evenly spaced, whether or not answers arrive. Latency counts from the moment a request
 * was due, so every request that a stall held up shows it (no coordinated omission).
 */
import { AnswerReader, dial, requestText } from '../lib/http1-client.ts'
import { type Load, type LoadResult, PATIENCE_MS, Tally } from '../lib/load.ts'
import { serveTasks } from '../lib/worker.ts'

/** A tick later than this is a stall of this process, which delayed the requests after it. */
const OWN_JITTER_MS = 3
const REDIAL_MS = 100
const MAX_UNSENT = 200_000

class Paced {
  readonly #load: Load
  readonly #tally = new Tally()
  /** When each unsent request was due, from `#head` on. */
  #due: number[] = []
  #head = 0
  readonly #free: Line[] = []
  readonly #lines: Line[] = []
  readonly #request: Buffer
  readonly #status: string
  readonly #expected: Buffer | undefined
  #isOver = false

  constructor(load: Load) {
    this.#load = load
    this.#status = String(load.expectStatus ?? 200)
    const fields = load.body === undefined ? {} : { 'content-length': Buffer.byteLength(load.body) }
    this.#request = Buffer.from(requestText(load, load.method ?? 'GET', fields) + (load.body ?? ''))
    this.#expected = load.expectBody === undefined ? undefined : Buffer.from(load.expectBody)
  }

  async run(): Promise<LoadResult> {
    const { connections, durationMs, rate = 100, bailout } = this.#load
    await Promise.all(Array.from({ length: connections }, () => this.#open()))
    const startedAt = performance.now()
    let sent = 0
    const total = Math.round((rate * durationMs) / 1000)
    while (sent < total && !this.#tally.failed(bailout) && this.#unsent < MAX_UNSENT) {
      await new Promise(resolve => setTimeout(resolve, 1))
      const now = performance.now()
      const dueNow = Math.min(total, Math.floor(((now - startedAt) * rate) / 1000))
      for (; sent < dueNow; sent++) {
        const dueAt = startedAt + (sent * 1000) / rate
        this.#due.push(now - dueAt > OWN_JITTER_MS + 1000 / rate ? dueAt : now)
      }
      this.#flush()
    }
    await this.#finish()
    return this.#tally.result(performance.now() - startedAt)
  }

  #flush(): void {
    while (this.#unsent > 0 && this.#free.length > 0) this.#free.pop()!.send(this.#request, this.#due[this.#head++]!)
    if (this.#unsent > 0) return
    this.#due = []
    this.#head = 0
  }

  get #unsent(): number {
    return this.#due.length - this.#head
  }

  /** What was not sent by now is not sent any more. What was sent has a little time left to be answered. */
  async #finish(): Promise<void> {
    this.#isOver = true
    const now = performance.now()
    for (const dueAt of this.#due.slice(this.#head)) this.#tally.addUnsent(now - dueAt)
    this.#head = this.#due.length
    const deadline = now + PATIENCE_MS
    while (this.#lines.some(line => line.isBusy) && performance.now() < deadline)
      await new Promise(resolve => setTimeout(resolve, 2))
    for (const line of this.#lines.splice(0)) line.end()
  }

  #open(): Promise<void> {
    return new Promise(resolve => {
      const line = new Line(this.#load, {
        onFree: () => {
          resolve()
          this.#free.push(line)
          this.#flush()
        },
        onAnswer: (status, body, ms) => {
          const right = status === this.#status && (this.#expected === undefined || this.#expected.equals(body))
          this.#tally.add(right || status !== this.#status ? status : 'wrong body', ms, right)
        },
        onGone: () => {
          this.#lines.splice(this.#lines.indexOf(line), 1)
          const index = this.#free.indexOf(line)
          if (index >= 0) this.#free.splice(index, 1)
          resolve()
          if (!this.#isOver) setTimeout(() => void this.#open(), REDIAL_MS)
        },
      })
      this.#lines.push(line)
    })
  }
}

interface LineEvents {
  onFree(): void
  onAnswer(status: string, body: Buffer, ms: number): void
  onGone(): void
}

const NOTHING = Buffer.alloc(0)

/** A connection with at most one request in progress. */
class Line {
  readonly #socket
  readonly #events: LineEvents
  #dueAt = 0
  isBusy = false

  constructor(load: Load, events: LineEvents) {
    this.#events = events
    const reader = new AnswerReader(
      ({ status, body }) => {
        this.#answered(String(status), body)
        if (!this.#socket.destroyed) events.onFree()
      },
      () => this.#socket.destroy(),
    )
    this.#socket = dial(load, () => events.onFree())
    this.#socket.on('data', (chunk: Buffer) => reader.read(chunk))
    this.#socket.on('error', () => {})
    this.#socket.on('close', () => {
      if (this.isBusy) this.#answered('broken', NOTHING)
      events.onGone()
    })
  }

  send(request: Buffer, dueAt: number): void {
    this.isBusy = true
    this.#dueAt = dueAt
    this.#socket.write(request)
  }

  end(): void {
    this.#socket.destroy()
  }

  #answered(status: string, body: Buffer): void {
    this.isBusy = false
    this.#events.onAnswer(status, body, performance.now() - this.#dueAt)
  }
}

serveTasks<Load, LoadResult>(load => new Paced(load).run())
