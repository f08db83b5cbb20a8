/**
 * One address for two TLS servers. Reads the server name of each ClientHello and hands the untouched socket to the control
 * endpoint or to the public edge. So settings such as TLS 1.3 only, and client certificates, apply to one name alone.
 */
import type { Socket } from 'node:net'
import { ConnectionSlots } from '../protocol/base/connection-slots.ts'
import { ignore } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { within } from './pause.ts'
import { MAX_CLIENT_HELLO_BYTES, readServerName } from './socket/client-hello.ts'
import { lookAtFirstBytes } from './socket/first-bytes.ts'

const HELLO_DEADLINE_MS = 5000

interface SniFrontOptions {
  /** Server name of the control endpoint, in lower case. */
  readonly controlName: string
  readonly control: (socket: Socket) => void
  readonly edge: (socket: Socket) => void
  readonly logger: Logger
  /** Most connections whose ClientHello has not arrived yet. Default 4,096. */
  readonly maxPending?: number
}

export class SniFront {
  readonly #options: SniFrontOptions
  readonly #pending: ConnectionSlots

  constructor(options: SniFrontOptions) {
    this.#options = options
    this.#pending = new ConnectionSlots(options.maxPending ?? 4096)
  }

  /** Handles an accepted connection that nobody has read from yet. */
  accept(socket: Socket): void {
    // The next owner adds its own listener. Until then, a reset must not end the process.
    socket.on('error', ignore)
    let name: string | undefined
    lookAtFirstBytes(socket, {
      slots: this.#pending,
      logger: this.#options.logger,
      deadlineMs: HELLO_DEADLINE_MS,
      maxBytes: MAX_CLIENT_HELLO_BYTES,
      look: bytes => {
        const result = readServerName(bytes)
        if (!result.done) return -1
        name = result.name
        return 0
      },
      done: () => {
        if (name === this.#options.controlName) this.#options.control(socket)
        else this.#options.edge(socket)
      },
    })
  }

  /** Resolves when all ClientHellos have arrived, at the latest after `ms`. */
  emptied(ms: number): Promise<void> {
    return within(ms, this.#pending.emptied())
  }

  /** Ends the connections whose ClientHello has not arrived. */
  close(): void {
    for (const pending of [...this.#pending]) pending.destroy()
  }
}
