/** Measures whether large packets pass in both directions, and asks the kernel how large they are. */
import { execFile } from 'node:child_process'
import { on } from 'node:events'
import type { Socket } from 'node:net'
import type { WebSocket } from 'ws'
import { formatAddress } from '../protocol/base/host-port.ts'

/** Together 5 kB, over three usual packets. `ws` ends a connection to which it owes more than 60 pongs. */
const FRAMES = 40
const FRAME_BYTES = 125
export const DIRECTION_MS = 2000
const ASK_MS = 900

/** The direction in which large packets do not arrive, if there is one. Rejects if the connection ends. */
export async function findLoss(socket: WebSocket): Promise<'to' | 'from' | undefined> {
  if (!(await passes(socket, 'pong'))) return 'to'
  return (await passes(socket, 'ping')) ? undefined : 'from'
}

/** Frames of one turn share packets. The server drops pongs; its answers to pings share packets, too. */
async function passes(socket: WebSocket, kind: 'ping' | 'pong'): Promise<boolean> {
  // The timer of a signal keeps no process alive, and a closed socket neither.
  const pongs = on(socket, 'pong', { signal: AbortSignal.timeout(DIRECTION_MS), close: ['close'] })
  for (let frame = 0; frame < FRAMES; frame++) socket[kind](Buffer.alloc(FRAME_BYTES))
  socket.ping(kind)
  try {
    for await (const [payload] of pongs) if (String(payload) === kind) return true
  } catch {}
  if (socket.readyState !== socket.OPEN) throw new Error('the connection ended')
  return false
}

/** What the kernel says of this connection; undefined unless it is Linux with `ss` (iproute2). */
export async function askKernel(tcp: Socket): Promise<{ mtu: number; segment: number } | undefined> {
  const { localAddress, localPort, remoteAddress, remotePort } = tcp
  if (localAddress === undefined || remoteAddress === undefined) return undefined
  const from = formatAddress({ host: localAddress, port: localPort! })
  const to = formatAddress({ host: remoteAddress, port: remotePort! })
  // Our environment may hold secrets.
  const options = { timeout: ASK_MS, killSignal: 'SIGKILL', env: { PATH: process.env.PATH } } as const
  const said = await new Promise<string>(resolve => {
    execFile('ss', ['-tinH', 'src', from, 'dst', to], options, (_error, stdout) => resolve(stdout))
  }).catch(() => '')
  const [, segment, mtu] = /\bmss:(\d+) pmtu:(\d+)/.exec(said) ?? []
  return mtu === undefined ? undefined : { mtu: Number(mtu), segment: Number(segment) }
}
