/** What hashicorp/yamux's own session tests cover, with our session at the other end, in both roles. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Transport, TransportHandler } from '../../protocol/wire/transport.ts'
import type { ResetCode, Stream, StreamHandler } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'
import { runProgram, score } from './program.ts'

/** A TCP connection; such a peer knows no control messages. */
class SocketTransport implements Transport {
  readonly peer = 'hashicorp'
  handler: TransportHandler | undefined
  readonly #socket: Socket

  constructor(socket: Socket) {
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => this.handler?.bytes(chunk))
    socket.on('close', () => this.handler?.closed(1000, 'closed', undefined))
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    this.#socket.write(chunk, () => sent())
  }

  control(): void {}

  close(): void {
    this.#socket.end()
  }

  terminate(): void {
    this.#socket.destroy()
  }
}

/** A stream that the peer opened: its first line says what to do. */
class Commanded implements StreamHandler {
  readonly #stream: Stream
  readonly #held: Commanded[]
  #command: string | undefined
  #text = ''
  #taken = 0
  #untaken = 0

  constructor(stream: Stream, held: Commanded[]) {
    this.#stream = stream
    this.#held = held
    stream.handler = this
  }

  data(chunk: Uint8Array): void {
    if (this.#command !== undefined) {
      this.#take(chunk)
      return
    }
    this.#text += Buffer.from(chunk).toString('latin1')
    this.#stream.consumed(chunk.length)
    const end = this.#text.indexOf('\n')
    if (end < 0) return
    const rest = Buffer.from(this.#text.slice(end + 1), 'latin1')
    this.#begin(this.#text.slice(0, end))
    if (rest.length > 0) this.#take(rest, 0)
  }

  #begin(command: string): void {
    this.#command = command
    const [verb = '', count = '0'] = command.split(' ')
    const { session } = this.#stream
    if (verb === 'source') this.#say(pattern(Number(count)))
    else if (verb === 'open') void this.#open(Number(count)).then(({ echoed }) => this.#say(`${echoed} echoed\n`))
    else if (verb === 'open-unaccepted')
      void this.#open(Number(count), 4).then(({ reset }) => this.#say(`${reset} reset\n`))
    else if (verb === 'go-away') {
      this.#say('gone\n')
      session.goAway()
    } else if (verb === 'close') session.close('told to')
    else if (verb === 'reset') this.#stream.reset('cancelled')
    else if (verb === 'hold') this.#held.push(this)
    else if (verb === 'release') for (const held of this.#held.splice(0)) held.#release()
  }

  #take(chunk: Uint8Array, credit = chunk.length): void {
    this.#taken += chunk.length
    if (this.#held.includes(this)) {
      this.#untaken += credit
      return
    }
    this.#stream.consumed(credit)
    if (this.#command === 'echo') this.#stream.write(Uint8Array.from(chunk))
    else if (this.#command === 'open-when-told') {
      const opened = this.#stream.session.canOpen
      this.#say(opened ? 'could open\n' : 'cannot open\n')
    }
  }

  #release(): void {
    this.#stream.consumed(this.#untaken)
  }

  #say(words: string | Uint8Array): void {
    this.#stream.write(typeof words === 'string' ? Buffer.from(words) : words)
    this.#stream.end()
  }

  end(): void {
    if (this.#command === 'sink' || this.#command === 'hold') this.#say(`${this.#taken} bytes\n`)
    else if (this.#command === 'echo' || this.#command === undefined) this.#stream.end()
  }

  reset(): void {}
  consumed(): void {}

  /** Opens streams to the peer and waits until `enough` have ended one way or the other. */
  #open(count: number, left = 0): Promise<{ echoed: number; reset: number }> {
    return new Promise(resolve => {
      const ends = { echoed: 0, reset: 0 }
      const over = () => {
        if (ends.echoed + ends.reset >= count - left) resolve(ends)
      }
      for (let i = 0; i < count; i++) {
        const stream = this.#stream.session.open()
        stream.handler = new Echoed(stream, `hello ${i}`, whole => {
          if (whole) ends.echoed++
          else ends.reset++
          over()
        })
      }
    })
  }
}

/** A stream of ours that wants its words back. */
class Echoed implements StreamHandler {
  readonly #stream: Stream
  readonly #words: string
  readonly #over: (whole: boolean) => void
  #text = ''

  constructor(stream: Stream, words: string, over: (whole: boolean) => void) {
    this.#stream = stream
    this.#words = words
    this.#over = over
    stream.write(Buffer.from(words))
    stream.end()
  }

  data(chunk: Uint8Array): void {
    this.#text += Buffer.from(chunk)
    this.#stream.consumed(chunk.length)
  }

  end(): void {
    this.#over(this.#text === this.#words)
  }

  reset(_code: ResetCode): void {
    this.#over(false)
  }

  consumed(): void {}
}

function pattern(bytes: number): Uint8Array {
  return Uint8Array.from({ length: bytes }, (_, i) => i % 251)
}

describe.runIf(needs('go'))('hashicorp/yamux', () => {
  let folder: string
  let server: Server
  const faults: string[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-yamux-'))
    await goBuild(join(import.meta.dirname, 'hashicorp-yamux'), join(folder, 'peer'))
    server = createServer(socket => {
      socket.on('error', () => {})
      socket.once('data', (first: Buffer) => begin(socket, first))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
  }, GO_BUILD_MS)
  afterAll(async () => {
    server.close()
    await rm(folder, { recursive: true, force: true })
  })

  function begin(socket: Socket, first: Buffer): void {
    const end = first.indexOf(10)
    const held: Commanded[] = []
    const transport = new SocketTransport(socket)
    createSession(transport, {
      role: first.toString('latin1', 0, end) as 'client' | 'server',
      onStream: stream => new Commanded(stream, held),
      onClose: error => {
        if (error?.reason === 'bad-request') faults.push(error.message)
      },
    })
    if (first.length > end + 1) transport.handler?.bytes(first.subarray(end + 1))
  }

  test('all scenarios, in both roles', { tags: ['slow'] }, async () => {
    const { port } = server.address() as AddressInfo
    const { out } = await runProgram(join(folder, 'peer'), [`127.0.0.1:${port}`], 280_000)
    const lines = out.trim().split('\n')
    const passed = lines.filter(line => line.startsWith('ok '))
    score('hashicorp/yamux', `${passed.length} of ${lines.length} scenarios, both roles`)
    expect(lines.filter(line => !line.startsWith('ok '))).toEqual([])
    expect(passed.length).toBeGreaterThanOrEqual(50)
    expect(faults).toEqual([])
  })
})
