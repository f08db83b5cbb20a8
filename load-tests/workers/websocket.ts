/** WebSocket echoes: `inFlight` messages at a time on each connection. Every echo is compared. */
import { readFileSync } from 'node:fs'
import { WebSocket } from 'ws'
import { PATIENCE_MS, type Place } from '../lib/load.ts'
import { quantile } from '../lib/measure.ts'
import { patternAt } from '../lib/pattern.ts'
import { serveTasks } from '../lib/worker.ts'

export interface WebSocketTask extends Place {
  readonly connections: number
  readonly inFlight: number
  readonly messageBytes: number
  readonly durationMs: number
  /** At most this many messages per second over all connections. If absent, as fast as they come back. */
  readonly rate?: number
}

export interface WebSocketResult {
  readonly messages: number
  readonly wrong: number
  readonly perSecond: number
  /** Round trip in ms. */
  readonly p50: number
  readonly p99: number
}

serveTasks<WebSocketTask, WebSocketResult>(async task => {
  const times: number[] = []
  const sockets = await Promise.all(Array.from({ length: task.connections }, () => open(task)))
  const startedAt = performance.now()
  const lost = await Promise.all(sockets.map(socket => echo(socket, task, times)))
  const seconds = (performance.now() - startedAt) / 1000
  times.sort((a, b) => a - b)
  return {
    messages: times.length,
    wrong: lost.reduce((sum, each) => sum + each, 0),
    perSecond: times.length / seconds,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
  }
})

function open(task: WebSocketTask): Promise<WebSocket> {
  const socket = new WebSocket(task.url.replace(/^http/, 'ws'), {
    headers: task.headers,
    perMessageDeflate: false,
    handshakeTimeout: PATIENCE_MS,
    ...(task.ca === undefined ? {} : { ca: readFileSync(task.ca) }),
    ...(task.headers.host === undefined ? {} : { servername: task.headers.host.replace(/:\d+$/, '') }),
  })
  return new Promise((resolve, reject) => {
    socket.once('open', () => resolve(socket))
    socket.once('error', reject)
  })
}

/** Resolves to how many messages came back wrong, or not at all. */
function echo(socket: WebSocket, task: WebSocketTask, times: number[]): Promise<number> {
  const sentAt: number[] = []
  const message = patternAt(0, task.messageBytes)
  const endsAt = performance.now() + task.durationMs
  const paceMs = task.rate === undefined ? 0 : (task.connections * task.inFlight * 1000) / task.rate
  let wrong = 0
  const send = () => {
    sentAt.push(performance.now())
    socket.send(message)
  }
  let left = task.inFlight
  const closeWhenDone = () => {
    if (--left === 0) socket.terminate()
  }
  const late = setTimeout(() => socket.terminate(), task.durationMs + PATIENCE_MS)
  return new Promise(resolve => {
    socket.on('message', (data: Buffer) => {
      const now = performance.now()
      const roundTrip = now - sentAt.shift()!
      times.push(roundTrip)
      if (!data.equals(message)) wrong++
      if (now + paceMs >= endsAt) closeWhenDone()
      else if (roundTrip >= paceMs) send()
      else setTimeout(send, paceMs - roundTrip)
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(late)
      resolve(wrong + sentAt.length)
    })
    for (let i = 0; i < task.inFlight; i++) send()
  })
}
