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
import { BufferPool } from '../protocol/wire/yamux/pool.ts'
import type { Session } from '../protocol/wire/yamux/session.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import { createSession } from '../protocol/wire/yamux/yamux-session.ts'

const HEAD = Buffer.alloc(300, 'h')
const ANSWER = Buffer.alloc(1024, 'a')
const CHUNK = Buffer.alloc(64 * 1024, 'b')

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

/** A session that opens streams and one that serves them. With `up`, the WebSocket client opens, so bodies are masked. */
async function sessions(onStream: (stream: Stream) => void, up = false): Promise<[Session, () => void]> {
  const [left, right, end] = kind === 'ws' ? await webSocketPair() : [...memoryPair(), () => {}]
  const pool = new BufferPool()
  const server = createSession(up ? right : left, { role: 'server', pool })
  const client = createSession(up ? left : right, { role: 'client', onStream, pool })
  for (const session of [server, client]) session.setPeerLimits({ windowBytes: 64 * 1024 })
  return [
    server,
    () => {
      server.close('done')
      end()
    },
  ]
}

/** Runs for the given time. Returns how much was done and what it cost. */
async function measure(name: string, unit: string, run: (stop: () => boolean) => Promise<number>): Promise<void> {
  let stopped = false
  await run(deadline(500))
  const cpu = process.cpuUsage()
  const began = performance.now()
  const count = await run(() => stopped || performance.now() - began > Number(seconds) * 1000)
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

async function exchanges(concurrency: number): Promise<void> {
  const [server, end] = await sessions(stream => {
    stream.handler = {
      data: chunk => stream.consumed(chunk.length),
      end: () => {
        stream.write(ANSWER)
        stream.end()
      },
      reset: () => {},
      consumed: () => {},
    }
  })
  await measure(`exchanges x${concurrency}`, 'exchange', stop => {
    return new Promise<number>(resolve => {
      let done = 0
      let running = concurrency
      const start = (): void => {
        const stream = server.open()
        stream.handler = {
          data: chunk => stream.consumed(chunk.length),
          end: () => {
            done++
            if (!stop()) start()
            else if (--running === 0) resolve(done)
          },
          reset: () => {},
          consumed: () => {},
        }
        stream.write(HEAD)
        stream.end()
      }
      for (let i = 0; i < concurrency; i++) start()
    })
  })
  end()
}

async function bulk(up: boolean): Promise<void> {
  const [server, end] = await sessions(stream => {
    stream.handler = {
      data: chunk => stream.consumed(chunk.length),
      end: () => stream.end(),
      reset: () => {},
      consumed: () => {},
    }
  }, up)
  await measure(up ? 'bulk, masked' : 'bulk', 'MiB', stop => {
    return new Promise<number>(resolve => {
      let sent = 0
      const stream = server.open()
      const fill = (): void => {
        while (stream.queuedBytes < 512 * 1024) stream.write(CHUNK)
      }
      stream.handler = {
        data: () => {},
        end: () => resolve(sent / (1024 * 1024)),
        reset: () => {},
        consumed: bytes => {
          sent += bytes
          if (stop()) stream.end()
          else fill()
        },
      }
      fill()
    })
  })
  end()
}

await exchanges(64)
await exchanges(1)
await bulk(false)
if (kind === 'ws') await bulk(true)
