/** What the tests of the router share: raw upstreams, raw callers, a logger that remembers. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Logger } from '../../protocol/base/log.ts'

export function recordingLogger(): { logger: Logger; lines: string[]; fields: object[] } {
  const lines: string[] = []
  const fields: object[] = []
  const at = (level: string) => (some: object, message: string) => {
    lines.push(`${level} ${message}`)
    fields.push(some)
  }
  return { logger: { debug: () => {}, info: at('info'), warn: at('warn'), error: at('error') }, lines, fields }
}

/** An upstream that keeps every byte it receives, by connection, and answers as the test says. */
export class RawUpstream {
  readonly port: number
  /** What arrived, in latin1, one text per connection. */
  readonly received: string[] = []
  readonly sockets: Socket[] = []
  readonly server: Server
  #waiting: (() => void)[] = []

  private constructor(server: Server) {
    this.server = server
    this.port = (server.address() as AddressInfo).port
  }

  /** `onData` is called after each chunk with everything that the connection has sent so far. */
  static async start(onData: (socket: Socket, text: string, index: number) => void = answerEach): Promise<RawUpstream> {
    const server = createServer({ allowHalfOpen: true })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const upstream = new RawUpstream(server)
    server.on('connection', socket => upstream.#take(socket, onData))
    return upstream
  }

  #take(socket: Socket, onData: (socket: Socket, text: string, index: number) => void): void {
    const index = this.received.push('') - 1
    this.sockets.push(socket)
    socket.on('error', () => {})
    socket.on('data', chunk => {
      this.received[index] += chunk.toString('latin1')
      onData(socket, this.received[index]!, index)
      this.#wake()
    })
    socket.on('end', () => socket.end())
    socket.on('close', () => this.#wake())
    this.#wake()
  }

  #wake(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const wake of waiting) wake()
  }

  /** Resolves once `isSo` holds; checked whenever something arrives or a connection opens or closes. */
  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    this.server.close()
    await once(this.server, 'close')
  }
}

export const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'

/** Answers 200 to each head, without looking at bodies. */
function answerEach(socket: Socket, text: string): void {
  if (text.endsWith('\r\n\r\n')) socket.write(OK)
}

/** Sends bytes and returns everything that arrives until the other side closes. */
export async function rawCall(port: number, bytes: string | Buffer): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
  let text = ''
  socket.setEncoding('latin1').on('data', chunk => {
    text += chunk
  })
  await once(socket, 'close')
  return text
}

/** One request that closes its connection. */
export function get(port: number, path: string, ...fields: string[]): Promise<string> {
  return rawCall(
    port,
    [
      'GET ',
      path,
      ' HTTP/1.1\r\nhost: outer.example\r\nconnection: close\r\n',
      ...fields.map(field => `${field}\r\n`),
      '\r\n',
    ].join(''),
  )
}
