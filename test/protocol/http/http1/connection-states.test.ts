// @module-tag slow
/**
 * Every state of a downstream connection against every event, in both orders. Whatever happens: nothing throws, each
 * end gets its last event once, and when the caller has gone, everything is at rest.
 */
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createAuthority, createServerCertificate } from '../../../../certs/index.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { Handler, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { type Listener, listen, type TlsMaterial } from '../../../../protocol/http/listener.ts'
import { eventually } from '../../../support/until.ts'

/** Short, so that the table is quick. */
const LIMITS: Partial<HttpLimits> = { halfCloseMs: 300, drainMs: 300, lingerMs: 600, stalledMs: 3000, expectMs: 50 }

const get = (fields = '') => `GET / HTTP/1.1\r\nHost: a\r\n${fields}\r\n`
const post = (bytes: number) => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n\r\n`
const KEY = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
const UPGRADE = get(`Connection: Upgrade\r\nUpgrade: websocket\r\n${KEY}`)
/** More than is read ahead. */
const MUCH = 'x'.repeat(300_000)

/** One exchange, as its handler sees it. */
class Exchange implements RequestSink {
  readonly response: ResponseSink
  readonly faults: string[] = []
  takes = true
  received = 0
  ends = 0
  aborts = 0
  /** The handler has finished. */
  answered = false
  failed = false
  #upgraded = false
  readonly #mayUpgrade: boolean

  constructor(response: ResponseSink, mayUpgrade: boolean) {
    this.response = response
    this.#mayUpgrade = mayUpgrade
  }

  requestData(chunk: Uint8Array): void {
    if (this.ends + this.aborts > 0) this.faults.push('data behind the last')
    this.received += chunk.length
    if (this.takes) this.response.requestConsumed(chunk.length)
  }

  requestEnd(): void {
    if (this.ends++ + this.aborts > 0) this.faults.push('end behind the last')
  }

  requestAbort(error: SallyportError): void {
    if (this.aborts++ > 0) this.faults.push(`a second abort: ${error.reason}`)
  }

  responseConsumed(): void {}

  /** Both directions are over. */
  get over(): boolean {
    // An answer that arrives before the end of its request ends it.
    return this.failed || this.aborts > 0 || (this.answered && (this.ends > 0 || !this.#upgraded))
  }

  head(status = 200): void {
    if (status === 101 && !this.answered) this.#upgraded = this.#mayUpgrade
    this.response.responseHead({ status, headers: [], bodyBytes: status === 101 ? 0 : -1 })
  }

  /** All of an answer, but not its end. */
  whole(): void {
    this.response.responseHead({ status: 200, headers: [], bodyBytes: 4 })
    this.say()
  }

  say(text = 'text'): void {
    this.response.responseData(Buffer.from(text))
  }

  finish(): void {
    this.answered = true
    this.head()
    this.response.responseEnd([])
  }

  fail(): void {
    this.failed = true
    this.response.responseAbort(new SallyportError('upstream-broken'))
  }
}

class Scene {
  readonly exchanges: Exchange[] = []
  readonly listener: Listener
  readonly caller: Socket
  /** Below TLS, if there is any. */
  readonly wire: Socket
  takes = true

  private constructor(listener: Listener, wire: Socket, caller: Socket) {
    this.listener = listener
    this.wire = wire
    this.caller = caller
    for (const socket of [wire, caller]) socket.on('error', () => {})
  }

  static async start(tls?: { material: TlsMaterial; ca: string }): Promise<Scene> {
    const handler: Handler = (request, response) => {
      const exchange = new Exchange(response, request.upgrade)
      exchange.takes = scene.takes
      scene.exchanges.push(exchange)
      return exchange
    }
    const listener = await listen({ port: 0, limits: LIMITS, handler, tls: tls?.material })
    const halfOpen = { noDelay: true, allowHalfOpen: true }
    const wire = connectTcp({ port: listener.address.port, host: '127.0.0.1', ...halfOpen })
    const secured = tls && connectTls({ socket: wire, ca: tls.ca, servername: 'localhost', ...halfOpen })
    await once(secured ?? wire, secured ? 'secureConnect' : 'connect')
    const scene = new Scene(listener, wire, secured ?? wire)
    return scene
  }

  get exchange(): Exchange {
    return this.exchanges.at(-1)!
  }

  send(text: string): void {
    if (this.caller.writable) this.caller.write(Buffer.from(text, 'latin1'))
  }

  async begin(text: string, count = 1): Promise<Exchange> {
    this.send(text)
    await eventually(() => expect(this.exchanges.length).toBe(count))
    return this.exchange
  }

  /** What was sent has got as far as it goes. */
  async settled(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
  }

  async hears(): Promise<void> {
    const heard = once(this.caller, 'data')
    this.caller.resume()
    await heard
  }

  /** After a FIN in transit: Node refuses a reset until then, and keeps the connection. */
  async reset(): Promise<void> {
    const { wire } = this
    if (wire.writableEnded && !wire.writableFinished && !wire.destroyed) await once(wire, 'finish').catch(() => {})
    wire.resetAndDestroy()
  }

  async rest(): Promise<void> {
    await eventually(() => {
      expect(this.listener.connections).toBe(0)
      expect(this.exchanges.filter(one => !one.over)).toHaveLength(0)
    })
    expect(this.exchanges.flatMap(one => one.faults)).toEqual([])
  }

  async stop(): Promise<void> {
    this.wire.destroy()
    await this.listener.close({ graceMs: 0 })
  }
}

const STATES: Record<string, (scene: Scene) => Promise<unknown>> = {
  'before a head': async () => {},
  'in a head': async scene => scene.send('GET / HT'),
  'before the answer': scene => scene.begin(get()),
  'before the answer, reading paused': scene => scene.begin(get() + MUCH),
  'body arriving': scene => scene.begin(`${post(1_000_000)}begun`),
  'body waiting for a 100': scene =>
    scene.begin('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n'),
  'body paused': async scene => {
    scene.takes = false
    await scene.begin(post(1_000_000) + MUCH)
  },
  'body paused, answer begun': async scene => {
    scene.takes = false
    const exchange = await scene.begin(post(1_000_000) + MUCH)
    exchange.head()
    exchange.say()
    await scene.hears()
  },
  'in the answer': async scene => {
    const exchange = await scene.begin(get())
    exchange.head()
    exchange.say()
    await scene.hears()
  },
  'in the answer, reading paused': async scene => {
    const exchange = await scene.begin(get() + MUCH)
    exchange.head()
    exchange.say()
    await scene.hears()
  },
  'answered early': async scene => {
    const exchange = await scene.begin(`${post(1000)}begun`)
    exchange.finish()
    await scene.hears()
  },
  'answered early, our half closed': async scene => {
    const exchange = await scene.begin(`${post(1_000_000)}begun`)
    exchange.fail()
    await scene.hears()
  },
  'answered, not ended': async scene => {
    const exchange = await scene.begin(get())
    exchange.whole()
    await scene.hears()
  },
  'answered, not ended, body arriving': async scene => {
    const exchange = await scene.begin(`${post(1000)}begun`)
    exchange.whole()
    await scene.hears()
  },
  'answered, not ended, body paused': async scene => {
    scene.takes = false
    const exchange = await scene.begin(post(300_000) + MUCH)
    exchange.whole()
    await scene.hears()
  },
  'before a 101': scene => scene.begin(UPGRADE),
  'before a 101, reading paused': scene => scene.begin(UPGRADE + MUCH),
  upgraded: async scene => {
    const exchange = await scene.begin(UPGRADE)
    exchange.head(101)
    await scene.hears()
  },
  'upgraded, reading paused': async scene => {
    scene.takes = false
    const exchange = await scene.begin(UPGRADE + MUCH)
    exchange.head(101)
    await scene.hears()
  },
  'upgraded, our half closed': async scene => {
    const exchange = await scene.begin(UPGRADE)
    exchange.head(101)
    exchange.answered = true
    exchange.response.responseEnd([])
    await scene.hears()
  },
  'caller half-closed, before the answer': async scene => {
    await scene.begin(get())
    scene.caller.end()
  },
  'caller half-closed, in the answer': async scene => {
    const exchange = await scene.begin(get())
    exchange.head()
    exchange.say()
    scene.caller.end()
    await scene.hears()
  },
  'caller half-closed, upgraded': async scene => {
    const exchange = await scene.begin(UPGRADE)
    exchange.head(101)
    scene.caller.end()
    await eventually(() => expect(exchange.ends).toBe(1))
  },
  'answers unread': async scene => {
    scene.caller.pause()
    const exchange = await scene.begin(get().repeat(2))
    exchange.answered = true
    exchange.head()
    exchange.say('x'.repeat(20_000_000))
    exchange.response.responseEnd([])
  },
}

const EVENTS: Record<string, (scene: Scene) => unknown> = {
  FIN: scene => scene.caller.end(),
  RST: scene => scene.reset(),
  data: scene => scene.send('more'),
  'a whole request': scene => scene.send(get()),
  answer: scene => scene.exchange?.finish(),
  failure: scene => scene.exchange?.fail(),
  '101': scene => scene.exchange?.head(101),
  'a whole answer, not ended': scene => scene.exchange?.whole(),
  'a stop': scene => {
    void scene.listener.close({ graceMs: 5000 })
  },
  'credit given back': scene => scene.exchange?.response.requestConsumed(scene.exchange.received),
}

const PAIRS = Object.keys(EVENTS).flatMap(first => Object.keys(EVENTS).map(second => [first, second] as const))

test.each(Object.entries(STATES))('%s: any two events', { tags: ['slow'] }, async (_name, reach) => {
  const scenes = PAIRS.map(async ([first, second], n) => {
    const scene = await Scene.start()
    await reach(scene)
    await scene.settled()
    await EVENTS[first]!(scene)
    // Half of them (nearly) in one turn.
    if (n % 2 === 0) await scene.settled()
    await EVENTS[second]!(scene)
    await scene.settled()
    await scene.reset()
    await scene.rest().catch(error => {
      throw new Error(`${first}, then ${second}: ${error.message}`)
    })
    await scene.stop()
  })
  await Promise.all(scenes)
})

test.each(Array.from({ length: 4 }, (_, n) => n))('walks of many events (%i)', async batch => {
  const walks = Array.from({ length: 50 }, async (_, n) => {
    const seed = batch * 50 + n
    const random = randomFrom(seed)
    const one = <T>(list: T[]): T => list[Math.floor(random() * list.length)]!
    const said: string[] = []
    const scene = await Scene.start()
    scene.takes = random() < 0.5
    const [state, reach] = one(Object.entries(STATES))
    await reach(scene)
    for (let steps = 2 + random() * 8; steps > 0; steps--) {
      const [name, event] = one(Object.entries(EVENTS))
      said.push(name)
      await event(scene)
      if (random() < 0.5) await scene.settled()
    }
    await scene.reset()
    await scene.rest().catch(error => {
      throw new Error(`seed ${seed}: ${state}, ${said.join(', ')}: ${error.message}`)
    })
    await scene.stop()
  })
  await Promise.all(walks)
})

/** Mulberry32. */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

describe('a reset is noticed in every state', () => {
  let tls: { material: TlsMaterial; ca: string }
  beforeAll(async () => {
    const authority = await createAuthority()
    const { certificate, key } = await createServerCertificate(authority, { hosts: ['localhost'] })
    tls = { material: { cert: certificate, key }, ca: authority.certificate }
  })
  const open: Scene[] = []
  afterAll(async () => {
    for (const scene of open) await scene.stop()
  })

  describe.each(['TCP', 'TLS'])('%s', transport => {
    test.concurrent.each(Object.entries(STATES))('%s', async (_name, reach) => {
      const scene = await Scene.start(transport === 'TLS' ? tls : undefined)
      open.push(scene)
      await reach(scene)
      await scene.settled()
      await scene.reset()
      await scene.rest()
    })
  })
})
