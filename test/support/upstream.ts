/** An upstream that the test writes: it sees each request as it stands on the wire, and answers with bytes. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { ByteReader, WireFault } from './byte-reader.ts'
import { bodyForm, collect, readBody, readHead, value, writeFields } from './http1-wire.ts'
import { write as writeTo } from './write.ts'

export interface ReceivedRequest {
  readonly method: string
  readonly path: string
  /** `[name, value, ...]` in order, names as they came. */
  readonly fields: string[]
  readonly body: AsyncIterable<Buffer>
  /** Filled when the body has been read to its end. */
  readonly trailers: string[]
  readonly socket: Socket
  /** Bytes behind the head of an upgrade. */
  readonly reader: ByteReader
  readAll(): Promise<Buffer>
  /** Writes bytes as they are; resolves when the kernel can take more. */
  write(bytes: string | Buffer): Promise<void>
  /** A whole answer with `content-length`. */
  answer(status: number, body?: string | Buffer, fields?: readonly string[]): Promise<void>
  /** Reads on, behind the body, until the other side has closed or reset the connection. */
  gone(): Promise<void>
}

export type Answer = (request: ReceivedRequest) => void | Promise<void>

export class Upstream {
  readonly port: number
  /** What the next requests get, by path without query; a test puts its own in. */
  readonly answers = new Map<string, Answer>()
  readonly faults: WireFault[] = []
  connections = 0
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server) {
    this.#server = server
    this.port = (server.address() as AddressInfo).port
    server.on('connection', socket => this.#serve(socket))
  }

  static async start(): Promise<Upstream> {
    const server = createServer({ allowHalfOpen: true })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Upstream(server)
  }

  /** Puts an answer at a path of its own and returns the path. */
  on(name: string, answer: Answer): string {
    const path = `/app-proxy/${name}-${this.answers.size}`
    this.answers.set(path, answer)
    return path
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #serve(socket: Socket): void {
    this.connections++
    this.#sockets.add(socket)
    socket.setNoDelay()
    socket.on('error', () => {})
    socket.on('close', () => this.#sockets.delete(socket))
    this.#requests(socket).catch(error => {
      if (error instanceof WireFault) this.faults.push(error)
      socket.destroy()
    })
  }

  async #requests(socket: Socket): Promise<void> {
    const reader = new ByteReader(socket)
    for (;;) {
      const head = await readHead(reader)
      if (head === undefined || socket.destroyed) break
      const [method = '', path = ''] = head.start.split(' ')
      const request = makeRequest(socket, reader, method, path, head.fields)
      const answer = this.answers.get(path.split('?')[0] ?? '')
      if (answer === undefined) await request.answer(404)
      else await answer(request)
      if (value(head.fields, 'upgrade') !== undefined || socket.writableEnded || socket.destroyed) return
      await drain(request)
    }
    socket.end()
  }
}

async function drain(request: ReceivedRequest): Promise<void> {
  for await (const _ of request.body) if (request.socket.destroyed) return
}

function makeRequest(
  socket: Socket,
  reader: ByteReader,
  method: string,
  path: string,
  fields: string[],
): ReceivedRequest {
  const trailers: string[] = []
  const body = readBody(reader, bodyForm(fields, false), trailers)
  const gone = async () => {
    try {
      while ((await reader.some()) !== undefined);
    } catch {
      // A reset is as good as an end.
    }
  }
  const write = (bytes: string | Buffer) => writeTo(socket, bytes)
  const answer = (status: number, content: string | Buffer = '', more: readonly string[] = []) => {
    const bytes = Buffer.from(content)
    const head = `HTTP/1.1 ${status} Some Words\r\n${writeFields([...more, 'content-length', String(bytes.length)])}\r\n`
    return write(Buffer.concat([Buffer.from(head, 'latin1'), bytes]))
  }
  return {
    method,
    path,
    fields,
    body: keepOpen(body),
    trailers,
    socket,
    reader,
    readAll: () => collect(body),
    write,
    answer,
    gone,
  }
}

/** A `break` in a test's loop must not end the body for the next loop. */
function keepOpen(body: AsyncGenerator<Buffer>): AsyncIterable<Buffer> {
  return { [Symbol.asyncIterator]: () => ({ next: () => body.next() }) }
}
