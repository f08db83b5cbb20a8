/** A caller as tests use it, the same for HTTP/1.1 and HTTP/2. */
import type { WebSocket } from 'ws'

export interface Ask {
  readonly method?: string
  readonly path: string
  /** `[name, value, ...]`; `host` is there already. */
  readonly fields?: readonly string[]
  /** A whole body; with `stream` the test writes it. */
  readonly body?: string | Buffer
  /** The test writes the body: `write`, `end`. */
  readonly stream?: boolean
}

export interface Reply {
  readonly status: number
  /** `[name, value, ...]`; names in lower case. */
  readonly fields: string[]
  /** Yields chunks as they come; throws where the body is cut. */
  readonly body: AsyncIterable<Buffer>
  /** Filled when the body has been read to its end. */
  readonly trailers: string[]
  readAll(): Promise<Buffer>
}

export interface Exchange {
  /** Informational responses so far. */
  readonly informational: Array<{ status: number; fields: string[] }>
  /** The first informational response with this status. */
  informed(status: number): Promise<void>
  readonly reply: Promise<Reply>
  /** Resolves when there is room for more. */
  write(chunk: Buffer): Promise<void>
  end(trailers?: readonly string[]): void
  /** Goes away, as a browser does whose tab is closed. */
  abort(): void
}

export interface Caller {
  begin(ask: Ask): Exchange
  /** A whole exchange. */
  ask(ask: Ask): Promise<Reply & { readonly content: Buffer }>
  webSocket(path: string, options?: WebSocketOptions): Promise<WebSocket>
  close(): void
}

export interface WebSocketOptions {
  readonly protocols?: string[]
  readonly fields?: Record<string, string>
  readonly perMessageDeflate?: boolean
}

/** Where a caller dials, and the host that it asks for there. */
export interface Place {
  readonly port: number
  /** With port. */
  readonly authority: string
  /** Undefined: no TLS. */
  readonly ca: string | undefined
}

export async function askWhole(caller: Pick<Caller, 'begin'>, ask: Ask): Promise<Reply & { content: Buffer }> {
  const reply = await caller.begin(ask).reply
  const content = await reply.readAll()
  return { ...reply, content }
}
