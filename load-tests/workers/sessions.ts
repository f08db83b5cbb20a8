/** Holds many sessions of tunnel clients, or bare TLS sockets and bare WebSocket sessions to compare them with. */
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { WebSocket } from 'ws'
import { connect, type Tunnel } from '../../client/index.ts'
import { serveTasks } from '../lib/worker.ts'

export type SessionsTask =
  | { readonly op: 'open-clients'; readonly port: number; readonly ca: string; readonly clients: Clients }
  | { readonly op: 'open-tls' | 'open-websocket'; readonly port: number; readonly ca: string; readonly count: number }
  | { readonly op: 'forget' }
  | { readonly op: 'wait-for-return'; readonly timeoutMs: number }

interface Clients {
  /** One for each client. */
  readonly tokens: readonly string[]
  /** For each client. */
  readonly connections: number
}

export interface SessionsResult {
  readonly open: number
  /** For `wait-for-return`: when each client, and each session, was back, in ns of the machine's monotonic clock. */
  readonly clientsBackNs?: readonly number[]
  readonly sessionsBackNs?: readonly number[]
}

/** How many handshakes are in progress at the same time. */
const OPENING = 64
const CONNECT_MS = 180_000
/** Each bare WebSocket session sends one message and gets its echo, as often as a tunnel is probed. */
const ECHO_MS = 10_000

const tunnels: Tunnel[] = []
const sockets: Socket[] = []
const webSockets: WebSocket[] = []
const back = { clients: new Map<Tunnel, number>(), sessions: [] as number[] }
let onChange = () => {}

serveTasks<SessionsTask, SessionsResult>(async task => {
  switch (task.op) {
    case 'open-clients':
      await each(task.clients.tokens, token => openClient(task.port, task.ca, token, task.clients.connections))
      return { open: tunnels.reduce((sum, tunnel) => sum + tunnel.stats().sessions.length, 0) }
    case 'open-tls': {
      const ca = readFileSync(task.ca)
      await each(new Array(task.count).fill(ca), () => openTls(task.port, ca))
      return { open: sockets.length }
    }
    case 'open-websocket': {
      const ca = readFileSync(task.ca)
      await each(new Array(task.count).fill(ca), () => openWebSocket(task.port, ca))
      return { open: webSockets.length }
    }
    case 'forget':
      back.clients.clear()
      back.sessions.length = 0
      return { open: 0 }
    case 'wait-for-return':
      await allReconnected(task.timeoutMs)
      return {
        open: tunnels.reduce((sum, tunnel) => sum + tunnel.stats().sessions.length, 0),
        clientsBackNs: [...back.clients.values()],
        sessionsBackNs: back.sessions,
      }
  }
})

async function each<T>(all: readonly T[], open: (one: T) => Promise<void>): Promise<void> {
  const rest = all.values()
  const opener = async () => {
    for (const one of rest) await open(one)
  }
  await Promise.all(Array.from({ length: OPENING }, opener))
}

/** Resolves when all of its sessions are open. */
async function openClient(port: number, ca: string, token: string, connections: number): Promise<void> {
  const tunnel = await connect({
    url: `wss://127.0.0.1:${port}`,
    ...{ token, connections, ca: readFileSync(ca), caOnly: true, proxy: '', connectTimeoutMs: CONNECT_MS },
    // With a content-length, which the generator of small requests needs.
    target: () => new Response('ok', { headers: { 'content-length': '2' } }),
  })
  tunnels.push(tunnel)
  const whole = Promise.withResolvers<void>()
  const look = () => {
    if (tunnel.stats().sessions.length >= connections) whole.resolve()
  }
  tunnel.on('connected', () => {
    const now = Number(process.hrtime.bigint())
    if (!back.clients.has(tunnel)) back.clients.set(tunnel, now)
    back.sessions.push(now)
    look()
    onChange()
  })
  look()
  await whole.promise
}

async function allReconnected(timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs
  const connections = tunnels[0]?.stats().connections.length ?? 1
  while (back.sessions.length < tunnels.length * connections && performance.now() < deadline)
    await new Promise<void>(resolve => {
      onChange = resolve
      setTimeout(resolve, 500)
    })
}

function openTls(port: number, ca: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, ca }, () => resolve())
    socket.on('error', reject)
    sockets.push(socket)
  })
}

function openWebSocket(port: number, ca: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`wss://127.0.0.1:${port}`, { ca, perMessageDeflate: false })
    socket.on('error', reject)
    socket.on('open', () => {
      setInterval(() => socket.send('still there'), ECHO_MS)
      resolve()
    })
    webSockets.push(socket)
  })
}
