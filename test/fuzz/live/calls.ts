/** Ordinary callers beside a hostile peer. Each sends one request over HTTP/1.1, and may leave before it has the answer. */
import type { Socket } from 'node:net'
import { resetSocket } from '../../../protocol/base/reset-socket.ts'
import type { FuzzScript } from '../script.ts'
import type { World } from './world.ts'

export class Calls {
  readonly #world: World
  readonly #host: string
  readonly #sockets: Socket[] = []

  constructor(world: World, host: string) {
    this.#world = world
    this.#host = host
  }

  /** A request to `path`, with no body, a complete one, or one that never ends. */
  begin(script: FuzzScript, path: string): void {
    const socket = this.#world.dial()
    this.#sockets.push(socket)
    socket.resume()
    const kind = script.next() % 5
    const start = `${kind === 0 ? 'GET' : 'POST'} ${path} HTTP/1.1\r\nHost: ${this.#host}\r\n`
    if (kind === 0) socket.write(`${start}\r\n`)
    else if (kind === 1) socket.write(`${start}Content-Length: 3\r\n\r\nabc`)
    else if (kind === 2) socket.write(`${start}Content-Length: 200000\r\n\r\n${'x'.repeat(200_000)}`)
    else if (kind === 3) socket.write(`${start}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`)
    else {
      socket.write(
        `${start.replace('POST', 'GET')}Connection: Upgrade\r\nUpgrade: websocket\r\n` +
          'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n',
      )
    }
  }

  /** One of them stops reading, reads on, half-closes, or leaves. */
  disturb(script: FuzzScript): void {
    const socket = this.#sockets[script.next() % Math.max(1, this.#sockets.length)]
    if (socket === undefined || socket.destroyed) return
    switch (script.next() % 5) {
      case 0:
      case 1:
        socket.pause()
        return
      case 2:
        socket.resume()
        return
      case 3:
        socket.end()
        return
      default:
        leaveByReset(socket)
    }
  }

  leave(): void {
    for (const socket of this.#sockets) leaveByReset(socket)
  }
}

/**
 * Resets a caller's connection, after a half-close if one is in progress: until that is done, the kernel only accepts an
 * ordinary close. If the edge does not read up to the FIN, only TCP's own probes find it, which take longer than a script
 * waits.
 */
export function leaveByReset(socket: Socket): void {
  const isHalfClosing = socket.writableEnded && !socket.writableFinished && !socket.destroyed
  if (isHalfClosing && socket.writableLength === 0) socket.once('finish', () => resetSocket(socket))
  else resetSocket(socket)
}

const MAX_STEPS = 60

/** A caller whose connection is driven step by step by the script. */
export interface PlayedCaller {
  readonly over: boolean
  step(): Promise<void>
  leave(): void
}

export async function playCaller(caller: PlayedCaller, script: FuzzScript): Promise<void> {
  for (let steps = 0; steps < MAX_STEPS && !script.over && !caller.over; steps++) await caller.step()
  caller.leave()
}
