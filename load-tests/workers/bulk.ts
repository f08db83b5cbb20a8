/** Large bodies on bare sockets. Every byte is compared. The answer to an upload says how many correct bytes arrived. */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { drained } from '../lib/drained.ts'
import { dial, requestText } from '../lib/http1-client.ts'
import { PATIENCE_MS, type Place } from '../lib/load.ts'
import { isPattern, patternAt } from '../lib/pattern.ts'
import { serveTasks } from '../lib/worker.ts'

export interface BulkTask extends Place {
  readonly direction: 'down' | 'up'
  readonly bytes: number
  /** How many transfers run in parallel, each on its own connection. Default 1. */
  readonly streams?: number
  /** Starts the next transfer when one is over, until this time has passed. The last one is cut off then. Default: one each. */
  readonly durationMs?: number
  /** Starts further transfers until this time has passed. Each one is completed. */
  readonly minMs?: number
}

export interface BulkResult {
  /** Over all transfers, including those that were cut off. */
  readonly bytes: number
  readonly transfers: number
  readonly wrong: number
  readonly durationMs: number
}

const CHUNK_BYTES = 256 * 1024

serveTasks<BulkTask, BulkResult>(async task => {
  const startedAt = performance.now()
  const endsAt = task.durationMs === undefined ? undefined : startedAt + task.durationMs
  const lastBeginsAt = endsAt ?? startedAt + (task.minMs ?? 0)
  const totals = { bytes: 0, transfers: 0, wrong: 0 }
  const loop = async () => {
    do await transfer(task, endsAt, totals)
    while (performance.now() < lastBeginsAt)
  }
  await Promise.all(Array.from({ length: task.streams ?? 1 }, loop))
  return { ...totals, durationMs: performance.now() - startedAt }
})

type Totals = { bytes: number; transfers: number; wrong: number }

async function transfer(task: BulkTask, endsAt: number | undefined, totals: Totals): Promise<void> {
  const fields = { connection: 'close', ...(task.direction === 'up' ? { 'content-length': task.bytes } : {}) }
  let isCut = false
  const socket = dial(task, () => {
    socket.write(requestText(task, task.direction === 'down' ? 'GET' : 'PUT', fields))
    if (task.direction === 'up') void send(socket, task.bytes, totals)
  })
  const timer =
    endsAt === undefined
      ? undefined
      : setTimeout(
          () => {
            isCut = true
            socket.destroy()
          },
          Math.max(0, endsAt - performance.now()),
        )
  socket.setTimeout(PATIENCE_MS, () => socket.destroy())
  socket.on('error', () => {})
  const isRight = task.direction === 'down' ? receive(socket, task.bytes, totals) : readCount(socket, task.bytes)
  await once(socket, 'close').catch(() => {})
  clearTimeout(timer)
  if (isCut) return
  totals.transfers++
  if (!isRight()) totals.wrong++
}

async function send(socket: Socket, bytes: number, totals: Totals): Promise<void> {
  for (let sent = 0; sent < bytes && !socket.destroyed; ) {
    const chunk = patternAt(sent, Math.min(CHUNK_BYTES, bytes - sent))
    sent += chunk.length
    totals.bytes += chunk.length
    if (!socket.write(chunk)) await drained(socket)
  }
}

/** Compares what arrives. Once the socket is closed, reports whether it was complete and correct. */
function receive(socket: Socket, bytes: number, totals: Totals): () => boolean {
  let head: Buffer | undefined = Buffer.alloc(0)
  let position = 0
  let isRight = true
  socket.on('data', (chunk: Buffer) => {
    let rest = chunk
    if (head !== undefined) {
      head = Buffer.concat([head, chunk])
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) return
      if (head.toString('latin1', 9, 12) !== '200') isRight = false
      rest = head.subarray(end + 4)
      head = undefined
    }
    if (isRight && !isPattern(rest, position)) isRight = false
    position += rest.length
    totals.bytes += rest.length
  })
  return () => isRight && position === bytes
}

function readCount(socket: Socket, bytes: number): () => boolean {
  let text = ''
  socket.setEncoding('latin1').on('data', part => {
    text += part
  })
  return () => /^HTTP\/1\.1 200 /.test(text) && text.endsWith(`\r\n\r\n${bytes}`)
}
