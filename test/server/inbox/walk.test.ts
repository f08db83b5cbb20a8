/**
 * A walk of everything that may happen to webhooks: receivers that fail, hang, refuse and leave, a disk that fails
 * before and after the write, servers that are killed. Whatever was accepted arrives in the order of its lane, or is a
 * dead letter.
 */

import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, HttpRequest, ResponseSink } from '../../../protocol/exchange.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import { refusing } from '../../../protocol/http/problem.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { INBOX } from '../../../server/limits.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { long } from '../../support/needs.ts'
import { randomOf } from '../../support/random.ts'
import { reading } from '../fixture.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'

const refuse = refusing(() => undefined)
const HOUR = 3_600_000

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

interface Sent {
  readonly body: string
  readonly path: string
  /** What the sender was told; 0 for nothing, since the server was killed. */
  status: number
}

class World {
  readonly random: () => number
  readonly disk = new MemoryDisk()
  readonly sent: Sent[] = []
  /** Bodies for which a receiver said 2xx, in order, and whether they came from the inbox. */
  readonly taken: { body: string; path: string; stored: boolean }[] = []
  live = true
  healthy = false
  #store!: MemoryInboxStore
  #inbox!: Inbox
  #front!: Handler

  constructor(seed: number) {
    this.random = randomOf(seed)
    this.disk.fault = () => {
      const dot = this.healthy ? 1 : this.random()
      return dot < 0.02 ? 'lost' : dot < 0.04 ? 'unsure' : 'none'
    }
    this.start()
  }

  start(): void {
    this.#store = new MemoryInboxStore(this.disk)
    const { live } = { live: () => this.live }
    this.#inbox = new Inbox({
      ...{ store: this.#store, limits: defaultsOf(INBOX), plaintext: true, logger: noLogger, now: Date.now },
      ...{ random: this.random, isLive: live, isHere: live, isOvertaken: () => false, look: () => {} },
    })
    this.#inbox.start(this.#receiver, refuse)
    this.#front = this.#inbox.layer(this.#receiver)
    this.#inbox.rules.publish(
      'demo',
      [{ route: 'r', path: '/', mode: 'fallback', answerWithinMs: 2000, lane: 'path' }],
      undefined,
    )
  }

  kill(): void {
    this.#store.kill()
    void this.#inbox.close()
    this.start()
  }

  readonly #receiver: Handler = (request, response) => {
    const store = this.#store
    return reading(response, body => this.#receive(request, String(body), response, store))
  }

  #receive(request: HttpRequest, body: string, response: ResponseSink, store: MemoryInboxStore): void {
    if (!this.live) {
      refuse(request, response, new SallyportError('runtime-offline'))
      return
    }
    const dot = this.healthy ? 1 : this.random()
    const answer = (status: number) => {
      response.responseHead({ status, headers: [], bodyBytes: 0 })
      response.responseEnd([])
    }
    const stored = getHeader(request.headers, 'sallyport-inbox-id') !== undefined
    const take = () => {
      // Nobody hears the answer of a killed server, but the receiver has it anyway.
      if (store === this.#store || stored) this.taken.push({ body, path: request.path, stored })
    }
    if (dot < 0.1) answer(500)
    else if (dot < 0.15) response.responseAbort(new SallyportError('session-lost'))
    else if (dot < 0.2) {
      take()
      response.responseAbort(new SallyportError('session-lost'))
    } else if (dot < 0.3) {
      setTimeout(
        () => {
          take()
          answer(200)
        },
        1000 + 4000 * this.random(),
      )
    } else {
      take()
      answer(200)
    }
  }

  post(): void {
    const one: Sent = { body: `hook ${this.sent.length}`, path: `/lane-${Math.floor(3 * this.random())}`, status: 0 }
    this.sent.push(one)
    const inbox = this.#inbox
    const response: ResponseSink = {
      ...DEAF,
      responseHead: ({ status }) => {
        if (inbox === this.#inbox) one.status = status
      },
    }
    const request = { ...EXCHANGE, method: 'POST', path: one.path, headers: [], runtime: 'demo' }
    const sink = this.#front(request, response)
    sink.requestData(Buffer.from(one.body))
    sink.requestEnd([])
  }

  setLive(live: boolean): void {
    this.live = live
    if (live) this.#inbox.wake('demo')
  }

  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms)
  }

  stats() {
    return this.#inbox.stats()
  }
}

const SEEDS = Array.from({ length: long ? 400 : 40 }, (_, i) => i + 1)

test.each(SEEDS)('whatever was accepted arrives, in order, or is a dead letter: seed %d', async seed => {
  const world = new World(seed)
  for (let step = 0; step < 120; step++) {
    const dot = world.random()
    if (dot < 0.5) world.post()
    else if (dot < 0.6) world.setLive(!world.live)
    else if (dot < 0.64) world.kill()
    else await world.pass(world.random() * 5000)
  }
  world.healthy = true
  world.setLive(true)
  await world.pass(2 * HOUR)

  expect(world.disk.messages.filter(({ state }) => state === 'waiting')).toEqual([])
  const taken = new Set(world.taken.map(({ body }) => body))
  const bodyOf = (id: string) => Buffer.from(world.disk.parts.get(`${id} 1`) ?? []).toString()
  const dead = new Set(world.disk.messages.filter(({ state }) => state === 'dead').map(({ id }) => bodyOf(id)))
  const accepted = world.sent.filter(({ status }) => status === 200 || status === 202)
  expect(accepted.length).toBeGreaterThan(10)
  expect(accepted.filter(({ body }) => !taken.has(body) && !dead.has(body))).toEqual([])
  expect(world.sent.filter(({ status }) => ![0, 200, 202, 503].includes(status))).toEqual([])

  // Those behind a dead letter overtook it, and a lost answer may cause a late repeat: the first of each counts.
  const lanes = new Set(world.disk.messages.map(({ lane }) => lane))
  for (const lane of lanes) {
    const inOrder = world.disk.messages
      .filter(one => one.lane === lane && one.state === 'delivered')
      .map(({ id }) => bodyOf(id))
    const firsts = [...new Set(world.taken.filter(({ stored }) => stored).map(({ body }) => body))]
    const came = firsts.filter(body => inOrder.includes(body))
    if (dead.size === 0) expect(came).toEqual(inOrder.filter(body => came.includes(body)))
  }
  expect(world.stats()).toMatchObject({ bufferBytes: 0, lanes: 0, messages: { waiting: 0 } })
})
