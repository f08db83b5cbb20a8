/** Long-lived traffic: downloads in a loop, WebSockets and event streams. Short ones must end complete; endless ones last. */
import { setTimeout as wait } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { Place } from '../../support/caller.ts'
import { CallerConnection, DIAL_MS, NotTaken, type Result, socketTo } from './connection.ts'
import { Expected } from './content.ts'
import type { Ledger, Outcome } from './ledger.ts'
import { judge } from './steady.ts'
import { eventOf, type TrafficUpstream } from './upstream.ts'

export interface DownloadSize {
  readonly bytes: number
  readonly bytesPerSecond: number
}

const MESSAGE_MS = 100
const PAUSE_MS = 100
const GOING_AWAY = 1001
const FOREVER_MS = 86_400_000

/** A long-lived caller. `run` resolves once `stop` is aborted and everything that can end has ended. */
export interface Lasting {
  run(stop: AbortSignal): Promise<void>
}

interface About {
  readonly name: string
  readonly place: Place
  readonly upstream: TrafficUpstream
  readonly ledger: Ledger
}

export class Downloads implements Lasting {
  readonly #about: About
  readonly #size: DownloadSize

  constructor(about: About, size: DownloadSize) {
    this.#about = about
    this.#size = size
  }

  async run(stop: AbortSignal): Promise<void> {
    const { name, ledger, upstream } = this.#about
    for (let i = 0; !stop.aborted; i++) {
      const entry = ledger.begin('download', upstream.runtime)
      entry.end(await this.#once(`${name}-${i}`))
      await wait(PAUSE_MS)
    }
  }

  async #once(id: string): Promise<Outcome> {
    const { runtime } = this.#about.upstream
    const { bytes, bytesPerSecond } = this.#size
    const expected = new Expected(`${runtime} ${id}`, bytes)
    const path = `/download/${runtime}/${id}?bytes=${bytes}&rate=${bytesPerSecond}`
    const result = await askAlone(this.#about.place, path, chunk => expected.data(chunk))
    return result instanceof NotTaken ? { kind: 'refused', reason: result.message } : judge(result, expected)
  }
}

/** Event streams of `count` events each, in turn. 0: endless ones, which only the grace may end. */
export class EventStreams implements Lasting {
  readonly #about: About
  readonly #count: number

  constructor(about: About, count: number) {
    this.#about = about
    this.#count = count
  }

  async run(stop: AbortSignal): Promise<void> {
    const { name, ledger, upstream } = this.#about
    for (let i = 0; !stop.aborted; i++) {
      const entry = ledger.begin('events', upstream.runtime)
      entry.end(await this.#once(`${name}-${i}`, stop))
      await wait(PAUSE_MS)
    }
  }

  async #once(id: string, stop: AbortSignal): Promise<Outcome> {
    const { runtime } = this.#about.upstream
    const path = `/events/${runtime}/${id}?count=${this.#count}`
    let text = ''
    let events = 0
    let problem: string | undefined
    const onData = (chunk: Buffer) => {
      text += chunk
      for (let next = eventOf(runtime, id, events); text.length >= next.length; next = eventOf(runtime, id, events)) {
        if (!text.startsWith(next)) problem ??= `${JSON.stringify(text.slice(0, 60))} in place of event ${events}`
        text = text.slice(next.length)
        events++
      }
    }
    const left = this.#count === 0 ? stop : undefined
    const result = await askAlone(this.#about.place, path, onData, left)
    if (left?.aborted) return { kind: 'ok' }
    return this.#judge(result, events, problem)
  }

  #judge(result: Result | NotTaken, events: number, problem: string | undefined): Outcome {
    if (result instanceof NotTaken) return { kind: 'refused', reason: result.message }
    if (result.kind === 'unanswered') return { kind: 'lost', reason: result.reason }
    if (result.kind === 'answered' && result.status !== 200) {
      return { kind: 'lost', reason: `${result.status} ${result.code}` }
    }
    if (problem !== undefined) return { kind: 'wrong', reason: problem }
    if (result.kind === 'cut') return { kind: this.#count === 0 ? 'outlived' : 'cut', reason: 'event stream cut' }
    return events === this.#count ? { kind: 'ok' } : { kind: 'wrong', reason: `a clean end behind ${events} events` }
  }
}

/** WebSockets that live for `lifeMs` and are closed by the caller. 0: endless ones, which only the grace may end. */
export class WebSockets implements Lasting {
  readonly #about: About
  readonly #lifeMs: number

  constructor(about: About, lifeMs: number) {
    this.#about = about
    this.#lifeMs = lifeMs
  }

  async run(stop: AbortSignal): Promise<void> {
    const { name, ledger, upstream } = this.#about
    for (let i = 0; !stop.aborted; i++) {
      const entry = ledger.begin('webSocket', upstream.runtime)
      entry.end(await this.#once(`${name}-${i}`, stop))
      await wait(PAUSE_MS)
    }
  }

  async #once(id: string, stop: AbortSignal): Promise<Outcome> {
    const { place, upstream } = this.#about
    let isTaken = false
    const options = {
      createConnection: () => {
        const socket = socketTo(place)
        return socket.once('secureConnect', () => {
          isTaken = true
        })
      },
      headers: { host: place.authority },
      perMessageDeflate: false,
      handshakeTimeout: DIAL_MS,
    }
    const ws = new WebSocket(`wss://127.0.0.1:${place.port}/ws/${upstream.runtime}/${id}`, options)
    let refused = ''
    ws.on('error', error => {
      refused ||= (error as NodeJS.ErrnoException).code ?? error.message
    })
    const opened = await new Promise<boolean>(done => {
      ws.once('open', () => done(true))
      ws.once('close', () => done(false))
    })
    if (!opened) return { kind: isTaken ? 'lost' : 'refused', reason: refused }
    return this.#talk(ws, id, stop)
  }

  async #talk(ws: WebSocket, id: string, stop: AbortSignal): Promise<Outcome> {
    const { runtime } = this.#about.upstream
    let sent = 0
    let echoed = 0
    let problem: string | undefined
    ws.on('message', data => {
      const wanted = `${runtime} ${id} ${echoed++}`
      if (String(data) !== wanted) problem ??= `${String(data).slice(0, 60)} in place of ${wanted}`
    })
    const ended = new Promise<[number, Buffer]>(done =>
      ws.once('close', (code: number, reason: Buffer) => done([code, reason])),
    )
    const speaking = setInterval(() => ws.readyState === WebSocket.OPEN && ws.send(String(sent++)), MESSAGE_MS)
    const life = new AbortController()
    const over = this.#lifeMs === 0 ? FOREVER_MS : this.#lifeMs
    const enough = wait(over, undefined, { signal: AbortSignal.any([stop, life.signal]) }).catch(() => {})
    const theirs = await Promise.race([ended, enough])
    life.abort()
    clearInterval(speaking)
    if (theirs !== undefined) return this.#judgeEnd(theirs, problem)
    ws.close(1000)
    const [code, reason] = await ended
    if (problem !== undefined) return { kind: 'wrong', reason: problem }
    return code === 1000 ? { kind: 'ok' } : this.#judgeEnd([code, reason], problem)
  }

  /** The other side ended it. */
  #judgeEnd([code, reason]: [number, Buffer], problem: string | undefined): Outcome {
    if (problem !== undefined) return { kind: 'wrong', reason: problem }
    const said = `${this.#lifeMs === 0 ? 'endless' : 'short'}, ${code} ${reason}`.trim()
    const isProper = code === GOING_AWAY && reason.length > 0
    return isProper && this.#lifeMs === 0
      ? { kind: 'outlived', reason: said }
      : { kind: 'cut', reason: said, abrupt: !isProper }
  }
}

/** One request on its own connection. `stop` ends it. */
async function askAlone(
  place: Place,
  path: string,
  onData: (chunk: Buffer) => void,
  stop?: AbortSignal,
): Promise<Result | NotTaken> {
  let connection: CallerConnection
  try {
    connection = await CallerConnection.dial(place)
  } catch (error) {
    if (error instanceof NotTaken) return error
    throw error
  }
  const leave = () => connection.close()
  stop?.addEventListener('abort', leave)
  if (stop?.aborted) leave()
  const result = await connection.ask({ method: 'GET', path, onData }, FOREVER_MS)
  stop?.removeEventListener('abort', leave)
  connection.close()
  return result
}
