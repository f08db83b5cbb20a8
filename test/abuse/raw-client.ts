/** A client with a valid token that misbehaves: it sends whatever frames and control messages it is asked to. */
import { once } from 'node:events'
import { WebSocket } from 'ws'
import { CONNECT_PATH, type PeerLimits, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { Flag, FrameType } from '../../protocol/wire/yamux/frame.ts'
import { type Frame, FrameReader, frame } from '../protocol/wire/yamux/support.ts'
import type { World } from './world.ts'

export class RawClient {
  readonly ws: WebSocket
  /** Called for every frame that is not a ping. */
  onFrame: (frame: Frame) => void = () => {}
  closed = false
  readonly #reader = new FrameReader()
  readonly gone: Promise<void>
  /** Types of the control messages that have arrived and that nobody has waited for yet. */
  readonly #heard: string[] = []
  #tell = () => {}

  private constructor(ws: WebSocket) {
    this.ws = ws
    this.gone = new Promise(resolve => {
      ws.once('close', () => {
        this.closed = true
        this.#tell()
        resolve()
      })
    })
    ws.on('message', (data: Buffer, isBinary) => {
      if (isBinary) {
        this.#read(data)
        return
      }
      this.#heard.push(JSON.parse(data.toString()).type)
      this.#tell()
    })
  }

  /** Answers pings, as every peer does. Everything else is up to the attacker. */
  #read(data: Buffer): void {
    this.#reader.push(data)
    for (const one of this.#reader.frames.splice(0)) {
      if (one.type === FrameType.ping && one.flags === Flag.syn)
        this.send(frame(FrameType.ping, Flag.ack, 0, one.length))
      else this.onFrame(one)
    }
  }

  send(bytes: Buffer): void {
    if (this.ws.readyState === WebSocket.OPEN) this.ws.send(bytes)
  }

  /** Connects, and announces that it can serve `runtime`. */
  static async connect(world: World, runtime: string, limits: PeerLimits = {}): Promise<RawClient> {
    const authorization = `Bearer ${await world.secrets.token(runtime)}`
    const ws = new WebSocket(`wss://127.0.0.1:${world.controlPort}${CONNECT_PATH}`, [SUBPROTOCOL], {
      ca: world.secrets.ca,
      headers: { authorization },
      perMessageDeflate: false,
    })
    ws.on('error', () => {})
    const client = new RawClient(ws)
    await Promise.race([
      once(ws, 'open'),
      client.gone.then(() => {
        throw new Error('the attacker was not let in')
      }),
    ])
    const about = { instance: `i${process.hrtime.bigint()}`, startedMs: Date.now(), lastEpoch: 0, connection: 0 }
    client.say({ type: 'hello', minor: 0, software: 'attacker/1', limits, ...about })
    await client.heard('welcome')
    client.say({ type: 'ready' })
    await client.heard('ready')
    return client
  }

  say(message: object): void {
    this.ws.send(JSON.stringify(message))
  }

  /** Waits for a control message of this type, or for the end of the session. */
  async heard(type: string): Promise<void> {
    while (!this.closed) {
      const at = this.#heard.indexOf(type)
      if (at >= 0) {
        this.#heard.splice(0, at + 1)
        return
      }
      await new Promise<void>(resolve => {
        this.#tell = resolve
      })
    }
  }

  /** Sends batches of frames until the server ends the session or all are sent. */
  async flood(lots: number, make: (lot: number) => Buffer): Promise<void> {
    for (let lot = 0; lot < lots && !this.closed; lot++) {
      await Promise.race([new Promise(resolve => this.ws.send(make(lot), resolve)), this.gone])
    }
  }

  async end(): Promise<void> {
    this.ws.terminate()
    await this.gone
  }
}
