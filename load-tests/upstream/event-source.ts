/** One event per second to each open stream, spread evenly over the second. */
import type { ServerResponse } from 'node:http'

const SLOTS = 100
const SLOT_MS = 10

export class EventSource {
  readonly #slots = Array.from({ length: SLOTS }, () => new Map<ServerResponse, number>())
  #next = 0
  #timer: NodeJS.Timeout | undefined
  #open = 0

  /** Answers with an event stream that never ends by itself. */
  add(response: ServerResponse): void {
    const slot = this.#slots[this.#next++ % SLOTS]!
    slot.set(response, 0)
    this.#open++
    this.#timer ??= this.#tick()
    response.on('error', () => {})
    response.on('close', () => {
      slot.delete(response)
      if (--this.#open === 0) this.#rest()
    })
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    response.flushHeaders()
  }

  #rest(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #tick(): NodeJS.Timeout {
    const startedAt = performance.now()
    let done = 0
    return setInterval(() => {
      for (const due = (performance.now() - startedAt) / SLOT_MS; done < due; done++) this.#send(done % SLOTS)
    }, SLOT_MS)
  }

  #send(index: number): void {
    const slot = this.#slots[index]!
    for (const [response, id] of slot) {
      slot.set(response, id + 1)
      response.write(`id: ${id}\ndata: ${process.hrtime.bigint()}\n\n`)
    }
  }
}
