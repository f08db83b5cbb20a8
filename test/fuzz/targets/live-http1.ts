import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { DOMAIN } from '../../support/secrets.ts'
import { leaveByReset, type PlayedCaller, playCaller } from '../live/calls.ts'
import { liveTarget } from '../live/target.ts'
import { PATHS } from '../live/upstreams.ts'
import { World } from '../live/world.ts'
import type { FuzzScript } from '../script.ts'

const METHODS = ['GET', 'POST', 'POST', 'PUT', 'HEAD', 'OPTIONS', 'TRACE', 'FOO']
const HOSTS = [
  `demo.${DOMAIN}`,
  `demo.${DOMAIN}`,
  `demo.${DOMAIN}`,
  `away.${DOMAIN}`,
  'nobody.example',
  `gone.${DOMAIN}`,
]
const SIZES = [1, 10, 1_000, 20_000]
const ODD = [
  'Expect: 100-continue',
  'Connection: close',
  'Connection: keep-alive',
  'Transfer-Encoding: gzip',
  'Host: other.example',
  'Content-Length: x',
  'X Bad: 1',
  'Max-Forwards: 0',
  'Te: trailers',
]
const WEB_SOCKET =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n'

/** One caller's connection: pipelined requests, whole or in parts, without waiting for answers. */
class Caller implements PlayedCaller {
  readonly #socket: Socket
  readonly #world: World
  readonly #script: FuzzScript
  /** Bytes of the body still to be sent. 'chunked': until the last chunk. Undefined: a new request may begin. */
  #body: number | 'chunked' | undefined

  constructor(world: World, script: FuzzScript) {
    this.#world = world
    this.#script = script
    this.#socket = world.dial()
    this.#socket.resume()
  }

  get over(): boolean {
    return this.#socket.destroyed
  }

  #send(text: string): void {
    if (!this.#socket.destroyed && !this.#socket.writableEnded) this.#socket.write(text, 'latin1')
  }

  async step(): Promise<void> {
    await this[OPERATIONS[this.#script.next() % OPERATIONS.length]!]()
  }

  request(): void {
    if (this.#body !== undefined) {
      this.body()
      return
    }
    const script = this.#script
    const host = script.pick(HOSTS)
    const path = `${script.pick(['/one', '/two', '/one', '/two', '/one', '/gone', '/nowhere'])}${script.pick(PATHS)}`
    const upgrade = script.next() % 12 === 0
    const method = upgrade ? 'GET' : script.pick(METHODS)
    const kind = script.next() % 4
    const odd = script.next()
    let head = `${method} ${path} HTTP/1.${script.next() % 16 === 0 ? 0 : 1}\r\nHost: ${host}\r\n`
    if (upgrade) head += WEB_SOCKET
    else if (kind === 0) this.#body = script.pick(SIZES)
    else if (kind === 1) this.#body = 'chunked'
    if (this.#body === 'chunked') head += 'Transfer-Encoding: chunked\r\n'
    else if (this.#body !== undefined) head += `Content-Length: ${this.#body}\r\n`
    if (odd >= 216) head += `${ODD[odd % ODD.length]}\r\n`
    this.#send(`${head}\r\n`)
  }

  /** Like `request`, but many of the cheapest ones. */
  pipeline(): void {
    if (this.#body !== undefined) return
    const one = `GET ${this.#script.pick(['/one/small', '/nowhere', '/one/big', '/two/small'])} HTTP/1.1\r\nHost: ${this.#script.pick(HOSTS)}\r\n\r\n`
    this.#send(one.repeat(this.#script.next()))
  }

  body(): void {
    const script = this.#script
    if (this.#body === undefined) return
    const isLast = (script.next() & 1) === 1
    if (this.#body === 'chunked') {
      const size = script.pick(SIZES)
      this.#send(`${size.toString(16)}\r\n${'c'.repeat(size)}\r\n`)
      if (!isLast) return
      this.#send(script.next() & 1 ? '0\r\n\r\n' : '0\r\nx-end: 1\r\n\r\n')
      this.#body = undefined
    } else {
      const size = isLast ? this.#body : Math.min(this.#body, script.pick(SIZES))
      this.#send('l'.repeat(size))
      this.#body = this.#body === size ? undefined : this.#body - size
    }
  }

  /** A body longer than anything that is held back for a receiver. */
  flood(): void {
    if (this.#body === 'chunked') this.#send(`${(160_000).toString(16)}\r\n${'f'.repeat(160_000)}\r\n`)
  }

  garbage(): void {
    if (this.#script.next() % 16 === 0) this.#send(this.#script.take(16).toString('latin1'))
  }

  reading(): void {
    if (this.#script.next() & 1) this.#socket.pause()
    else this.#socket.resume()
  }

  lose(): void {
    if (this.#script.next() % 8 === 0) this.#world.cutSessions()
  }

  end(): void {
    const which = this.#script.next() % 16
    if (which < 2) this.#socket.end()
    else if (which === 2) leaveByReset(this.#socket)
  }

  async wait(): Promise<void> {
    await sleep(this.#script.pick([0, 0, 0, 1, 2, 5, 30]))
  }

  leave(): void {
    leaveByReset(this.#socket)
  }
}

const OPERATIONS = [
  ...(['request', 'request', 'request', 'request', 'pipeline', 'body', 'body', 'body', 'flood', 'garbage'] as const),
  ...(['reading', 'lose', 'end', 'wait', 'wait', 'wait'] as const),
]

/** A caller's HTTP/1.1 connection to a live pair: pipelines with pauses and cuts. */
export const liveHttp1 = liveTarget(
  'live-http1',
  () => World.start(),
  async (world, script) => {
    await playCaller(new Caller(world, script), script)
  },
)
