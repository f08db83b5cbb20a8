/**
 * A multiplexer alone: both ends in this process, over memory. `exchanges`: 64 streams at a time, each of which carries 300 bytes
 * one way and 1 KB back. `bulk`: one stream, 64 KiB at a time. Every byte that arrives is counted.
 */
import type { Duplex } from 'node:stream'
import { Client, Server } from 'yamux-js'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { drained } from '../lib/drained.ts'
import {
  ANSWER,
  answerStream,
  bulk,
  CHUNK,
  type Done,
  discardStream,
  exchanges,
  HEAD,
  withSessions,
} from '../lib/mux-load.ts'
import { serveTasks } from '../lib/worker.ts'

export interface MuxTask {
  readonly implementation: 'sallyport' | 'yamux-js'
  readonly load: 'exchanges' | 'bulk'
  readonly durationMs: number
}

export interface MuxResult {
  /** Exchanges, or MB. */
  readonly count: number
  readonly durationMs: number
  readonly cpuUs: number
  /** Exchanges that ended with the wrong number of bytes. */
  readonly wrong: number
}

const CONCURRENCY = 64

serveTasks<MuxTask, MuxResult>(async ({ implementation, load, durationMs }) => {
  const run = RUNS[`${implementation}/${load}`]
  const before = process.cpuUsage()
  const startedAt = performance.now()
  const { count, wrong } = await run(() => performance.now() - startedAt > durationMs)
  const elapsed = performance.now() - startedAt
  const { user, system } = process.cpuUsage(before)
  return { count, wrong, durationMs: elapsed, cpuUs: (user + system) / count }
})

type Run = (isOver: () => boolean) => Promise<Done>

const RUNS: Record<`${MuxTask['implementation']}/${MuxTask['load']}`, Run> = {
  'sallyport/exchanges': isOver =>
    withSessions(answerStream, memoryPair(), session => exchanges(session, CONCURRENCY, isOver)),
  'sallyport/bulk': isOver => withSessions(discardStream, memoryPair(), session => bulk(session, isOver)),
  'yamux-js/exchanges': yamuxJsExchanges,
  'yamux-js/bulk': yamuxJsBulk,
}

/** Frames of yamux-js must not be split on the way, since it loses bytes of split frames. Each write is one of its frames. */
function yamuxJsPair(onStream: (stream: Duplex) => void) {
  const quiet = { enableKeepAlive: false }
  const server = new Server(stream => onStream(stream as unknown as Duplex), quiet)
  const client = new Client(quiet)
  client.on('data', (chunk: Buffer) => setImmediate(() => server.write(chunk)))
  server.on('data', (chunk: Buffer) => setImmediate(() => client.write(chunk)))
  return client
}

/**
 * yamux-js never handles the end of a stream, so a new stream for each exchange would exhaust its backlog. So 64 streams are opened
 * once, which saves it the work of opening. Each side counts bytes.
 */
function yamuxJsExchanges(isOver: () => boolean): Promise<Done> {
  const client = yamuxJsPair(stream => onEach(stream, HEAD.length, () => stream.write(ANSWER)))
  return new Promise(resolve => {
    let count = 0
    let running = CONCURRENCY
    for (let i = 0; i < CONCURRENCY; i++) {
      const stream = client.open() as unknown as Duplex
      onEach(stream, ANSWER.length, () => {
        count++
        if (!isOver()) stream.write(HEAD)
        else if (--running === 0) resolve({ count, wrong: 0 })
      })
      stream.write(HEAD)
    }
  })
}

/** Calls `then` whenever that many more bytes have arrived. */
function onEach(stream: Duplex, size: number, then: () => void): void {
  let bytes = 0
  stream.on('data', (chunk: Buffer) => {
    for (bytes += chunk.length; bytes >= size; bytes -= size) then()
  })
}

async function yamuxJsBulk(isOver: () => boolean): Promise<Done> {
  let taken = 0
  const client = yamuxJsPair(stream => {
    stream.on('data', (chunk: Buffer) => {
      taken += chunk.length
    })
  })
  const stream = client.open()
  while (!isOver()) if (!stream.write(CHUNK)) await drained(stream as unknown as Duplex)
  return { count: taken / 1e6, wrong: 0 }
}
