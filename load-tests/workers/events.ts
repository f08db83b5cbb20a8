/** Open event streams. Each event carries its number and the time when it was sent (the machine's monotonic clock). */
import { readFileSync } from 'node:fs'
import { Agent as HttpAgent, request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { PATIENCE_MS, type Place } from '../lib/load.ts'
import { quantile } from '../lib/measure.ts'
import { serveTasks } from '../lib/worker.ts'

export interface EventsTask extends Place {
  readonly streams: number
  readonly durationMs: number
  /** The sender's clock is that of another machine, so delays are counted relative to the shortest one. */
  readonly otherClock?: boolean
}

export interface EventsResult {
  readonly open: number
  readonly events: number
  /** Streams that did not open or broke, and events that were skipped. */
  readonly wrong: number
  /** Delivery delay in ms. */
  readonly p50: number
  readonly p99: number
}

/** How many streams are opened at the same time. */
const OPENING = 50

serveTasks<EventsTask, EventsResult>(async task => {
  const run = { delays: [] as number[], wrong: 0, open: 0, isCounting: false, isOver: false }
  const closers: (() => void)[] = []
  let left = task.streams
  const opener = async () => {
    while (left-- > 0) closers.push(await open(task, run))
  }
  await Promise.all(Array.from({ length: OPENING }, opener))
  run.isCounting = true
  await new Promise(resolve => setTimeout(resolve, task.durationMs))
  run.isOver = true
  for (const close of closers) close()
  const shortest = task.otherClock ? run.delays.reduce((least, each) => Math.min(least, each), Infinity) : 0
  const delays = run.delays.map(delay => delay - shortest).sort((a, b) => a - b)
  // An open stream that delivers nothing is as wrong as one that breaks, so at least half of the events must arrive.
  const missing = delays.length * 2000 < run.open * task.durationMs ? 1 : 0
  return {
    open: run.open,
    events: delays.length,
    wrong: run.wrong + missing,
    p50: quantile(delays, 0.5),
    p99: quantile(delays, 0.99),
  }
})

interface Run {
  delays: number[]
  wrong: number
  open: number
  isCounting: boolean
  isOver: boolean
}

function open(task: EventsTask, run: Run): Promise<() => void> {
  const url = new URL(task.url)
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  return new Promise(resolve => {
    const request = send(url, {
      headers: { ...task.headers, accept: 'text/event-stream' },
      ...(url.protocol === 'https:'
        ? {
            agent: false,
            ...(task.ca === undefined ? {} : { ca: readFileSync(task.ca) }),
            servername: (task.headers.host ?? url.hostname).replace(/:\d+$/, ''),
          }
        : { agent: new HttpAgent() }),
    })
    const fail = () => {
      if (!run.isOver) run.wrong++
      resolve(() => {})
    }
    request.on('error', fail)
    request.setTimeout(PATIENCE_MS, () => request.destroy())
    request.on('response', response => {
      request.setTimeout(0)
      if (response.statusCode !== 200) {
        response.resume()
        fail()
        return
      }
      run.open++
      readEvents(response, run)
      resolve(() => request.destroy())
    })
    request.end()
  })
}

function readEvents(response: NodeJS.ReadableStream & { on: NodeJS.EventEmitter['on'] }, run: Run): void {
  let text = ''
  let last: number | undefined
  response.setEncoding('latin1')
  response.on('data', (chunk: string) => {
    text += chunk
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [, id, sentAt] = /^id: (\d+)\ndata: (\d+)/.exec(text.slice(0, end)) ?? []
      text = text.slice(end + 2)
      if (id === undefined || (last !== undefined && Number(id) !== last + 1)) run.wrong++
      last = Number(id)
      if (run.isCounting) run.delays.push(Number(process.hrtime.bigint() - BigInt(sentAt ?? 0)) / 1e6)
    }
  })
  response.on('error', () => {})
  response.on('close', () => {
    if (!run.isOver) run.wrong++
  })
}
