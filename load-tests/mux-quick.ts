/**
 * How fast the multiplexer alone is: two sessions in one process, over memory or over a WebSocket on loopback.
 *
 *     node load-tests/mux-quick.ts [memory|ws] [seconds]
 *
 * `exchanges`: 64 streams at a time. Each sends 300 bytes and FIN, and receives 1 KB and FIN. `bulk`: one stream, in chunks of
 * 64 KiB. The CPU figure covers both ends together.
 */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { parseArgs } from 'node:util'
import { WebSocket, WebSocketServer } from 'ws'
import type { Transport } from '../protocol/wire/transport.ts'
import { memoryPair } from '../protocol/wire/transport-memory.ts'
import { webSocketTransport } from '../protocol/wire/transport-websocket.ts'
import { answerStream, bulk, type Done, discardStream, exchanges, withSessions } from './lib/mux-load.ts'

const { positionals } = parseArgs({ allowPositionals: true })
const [kind = 'memory', seconds = '3'] = positionals

async function webSocketPair(): Promise<[Transport, Transport, () => void]> {
  const options = { maxPayload: 128 * 1024, perMessageDeflate: false }
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', ...options })
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, options)
  await once(client, 'open')
  const [socket] = (await accepted) as [WebSocket]
  return [webSocketTransport(socket), webSocketTransport(client), () => server.close()]
}

/** Runs for the given time. Returns how much was done and what it cost. */
async function measure(name: string, unit: string, run: (stop: () => boolean) => Promise<Done>): Promise<void> {
  let stopped = false
  await run(deadline(500))
  const cpu = process.cpuUsage()
  const began = performance.now()
  const { count } = await run(() => stopped || performance.now() - began > Number(seconds) * 1000)
  stopped = true
  const elapsed = performance.now() - began
  const used = process.cpuUsage(cpu)
  const perSecond = (count / elapsed) * 1000
  const cpuUs = (used.user + used.system) / count
  console.log(`${kind} ${name}: ${perSecond.toFixed(0)} ${unit}/s, ${cpuUs.toFixed(2)} us CPU per ${unit}`)
}

function deadline(ms: number): () => boolean {
  const end = performance.now() + ms
  return () => performance.now() > end
}

/** With `up`, the WebSocket client opens the streams, so bodies are masked. */
async function pair(up = false): Promise<[transports: [Transport, Transport], end: () => void]> {
  const [left, right, end] = kind === 'ws' ? await webSocketPair() : [...memoryPair(), () => {}]
  return [up ? [right, left] : [left, right], end]
}

async function measureExchanges(concurrency: number): Promise<void> {
  const [transports, end] = await pair()
  await withSessions(answerStream, transports, session =>
    measure(`exchanges x${concurrency}`, 'exchange', stop => exchanges(session, concurrency, stop)),
  )
  end()
}

async function measureBulk(up: boolean): Promise<void> {
  const [transports, end] = await pair(up)
  await withSessions(discardStream, transports, session =>
    measure(up ? 'bulk, masked' : 'bulk', 'MB', stop => bulk(session, stop)),
  )
  end()
}

await measureExchanges(64)
await measureExchanges(1)
await measureBulk(false)
if (kind === 'ws') await measureBulk(true)
