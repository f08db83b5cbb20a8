/**
 * Every state of a downstream connection against every event, without a stop and in both halves of its grace. Whatever happens: nothing
 * throws; each end gets its last event once, and nothing behind it; answers come in order, and none looks complete that is not; the next
 * request is answered if the caller may send it; nobody is cut before the end of the grace who need not be; a stop lasts no longer than
 * something holds it; and in the end, everything is at rest.
 *
 * The clock is the test's own. A step is over when everything that was sent has arrived, so a busy machine changes nothing.
 */
import { once } from 'node:events'
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../../../protocol/exchange.ts'
import { type Listener, listen } from '../../../../protocol/http/listener.ts'
import { Random } from '../../../fuzz/random.ts'
import { short } from '../../../support/needs.ts'
import { makeSecrets, type Secrets } from '../../../support/secrets.ts'
import { firstSeed } from '../../../support/seed.ts'
import { until } from '../../../support/until.ts'

const LIMITS = { halfCloseMs: 500, drainMs: 300, lingerMs: 600, stalledMs: 3000, expectMs: 50 }
const GRACE_MS = 3000
/** How long after the begin of the stop the event happens. */
const MOMENTS = { 'no stop': 0, 'first half': 500, 'second half': 2000 }
/** The caller thinks, but less than half of the grace. */
const THINK_MS = 1200
/** Longer than the grace, and than it takes to notice that a caller has gone. */
const AFTER_MS = 4000
const TICK_MS = 100
type Moment = keyof typeof MOMENTS
/** More than the kernel takes. */
const MUCH = Buffer.alloc(12_000_000, 'a')

/** One exchange, as its handler sees it. */
class Exchange implements RequestSink {
  readonly path: string
  readonly method: string
  readonly hasBody: boolean
  readonly faults: string[] = []
  abortedAt: number | undefined
  /** The handler has ended the answer, or given up. */
  answered = false
  failed = false
  /** When the handler had said all of the answer. */
  wholeAt: number | undefined
  readonly #response: ResponseSink
  readonly #takes: boolean
  #ends = 0
  #held = 0
  /** What the head announced. */
  #bytes: number | undefined
  #said = 0
  #isRaw = false

  constructor({ path, method, bodyBytes }: HttpRequest, response: ResponseSink, takes: boolean) {
    this.path = path
    this.method = method
    this.hasBody = bodyBytes !== 0
    this.#response = response
    this.#takes = takes
  }

  #event(what: string, isLate: boolean): void {
    if (isLate || this.abortedAt !== undefined) this.faults.push(`${what} behind the last event of ${this.path}`)
  }

  requestData({ length }: Uint8Array): void {
    this.#event('data', this.#ends > 0 || this.over)
    this.#held += length
    if (this.#takes) this.credit()
  }

  requestEnd(): void {
    this.#event('an end', this.#ends++ > 0)
  }

  requestAbort(): void {
    this.#event('an abort', this.#ends > 0 && this.over)
    this.abortedAt = Date.now()
  }

  responseConsumed(): void {
    this.#event('credit', false)
  }

  credit(): void {
    const bytes = this.#held
    this.#held = 0
    this.#response.requestConsumed(bytes)
  }

  /** An answer that ends before its request ends that, too. */
  get over(): boolean {
    return this.failed || this.abortedAt !== undefined || (this.answered && (!this.#isRaw || this.#ends > 0))
  }

  head(bytes: number, status = 200): void {
    if (this.#bytes !== undefined || this.over || this.answered) return
    this.#bytes = bytes
    if (status === 204 || (this.method === 'HEAD' && status !== 101)) this.wholeAt ??= Date.now()
    this.#response.responseHead({ status, headers: ['x-path', this.path], bodyBytes: bytes })
    this.#isRaw = status === 101 && !this.over
  }

  say(bytes: number): void {
    if (this.over || bytes <= 0) return
    this.#said += bytes
    this.#response.responseData(MUCH.subarray(0, bytes))
    if (this.#said === this.#bytes) this.wholeAt ??= Date.now()
  }

  complete(bytes = 4): void {
    this.head(bytes)
    if (this.#bytes !== BODY_UNKNOWN) this.say(this.#bytes! - this.#said)
  }

  end(): void {
    this.complete()
    if (this.over || this.answered) return
    this.answered = true
    this.wholeAt ??= Date.now()
    this.#response.responseEnd([])
  }

  fail(): void {
    if (this.over || this.answered) return
    this.failed = true
    this.#response.responseAbort(new SallyportError('upstream-broken'))
  }
}

/** Accepts for the listeners of all scenes. With a port for each, the kernel would search longer and longer for a free one. */
const door = createServer({ allowHalfOpen: true, noDelay: true })
beforeAll(async () => {
  door.listen(0, '127.0.0.1')
  await once(door, 'listening')
})
afterAll(() => void door.close())

/** A caller with one connection to a listener of its own. */
class Scene {
  readonly exchanges: Exchange[] = []
  readonly faults: string[] = []
  readonly one: Case
  readonly form: Form
  listener!: Listener
  /** Below TLS, if there is any. */
  wire!: Socket
  caller!: Socket
  stoppedAt: number | undefined
  doneAt: number | undefined
  /** When the caller sent its next request, and whether our half was open then. */
  askedAt: number | undefined
  wasOpen = false
  #served!: Socket
  readonly #got: Buffer[] = []
  #isBroken = false

  constructor(one: Case) {
    this.one = one
    this.form = FORMS[one.form]!
  }

  async start(secrets?: Secrets): Promise<void> {
    const handler: Handler = (request, response) => {
      const exchange = new Exchange(request, response, !this.form.isUntaken)
      this.exchanges.push(exchange)
      if (request.path === '/next') exchange.end()
      return exchange
    }
    const logger = { ...noLogger, error: (_: object, message: string) => this.faults.push(message) }
    this.listener = await listen({ limits: LIMITS, handler, logger, tls: secrets?.server })
    const halfOpen = { noDelay: true, allowHalfOpen: true }
    const wire = connectTcp({ port: (door.address() as AddressInfo).port, host: '127.0.0.1', ...halfOpen })
    const [[served]] = await Promise.all([once(door, 'connection'), once(wire, 'connect')])
    this.#served = served
    this.listener.accept(served)
    const secured = secrets && connectTls({ socket: wire, ca: secrets.ca, servername: 'localhost', ...halfOpen })
    this.wire = wire
    this.caller = secured ?? wire
    for (const socket of [wire, this.caller]) socket.on('error', () => (this.#isBroken = true))
    this.caller.on('data', (bytes: Buffer) => this.#got.push(bytes))
    this.caller.on('end', () => this.caller.end())
    if (secured !== undefined) await once(secured, 'secureConnect')
  }

  /** The last that its handler has not left. */
  get exchange(): Exchange | undefined {
    return this.exchanges.findLast(one => !one.over)
  }

  /** Called in the end. */
  faultsAtRest(): string[] {
    const faults = [...this.faults, ...this.exchanges.flatMap(one => one.faults)]
    if (this.listener.connections > 0 || this.exchange !== undefined) faults.push('not at rest')
    if (this.stoppedAt !== undefined && this.doneAt === undefined) faults.push('the stop does not end')
    return faults
  }

  send(text = ''): void {
    if (this.caller.writable) this.caller.write(Buffer.from(text, 'latin1'))
  }

  ask(text: string): void {
    this.askedAt = Date.now()
    this.wasOpen = !this.caller.readableEnded
    this.send(text)
  }

  /** After a FIN in transit: Node refuses a reset until then, and keeps the connection. */
  reset(): void {
    const { wire } = this
    if (wire.writableEnded && !wire.writableFinished) wire.once('finish', () => wire.resetAndDestroy())
    else wire.resetAndDestroy()
  }

  /** A second one has what is left of the grace. */
  stop(graceMs = GRACE_MS): void {
    this.stoppedAt ??= Date.now()
    void this.listener.close({ graceMs: Math.max(0, this.stoppedAt + graceMs - Date.now()) }).then(() => {
      this.doneAt ??= Date.now()
    })
  }

  get isQuiet(): boolean {
    return this.wire !== this.caller || (hasArrived(this.wire, this.#served) && hasArrived(this.#served, this.wire))
  }

  /** In the order of their requests. `path` is undefined if an answer is not the handler's. */
  answers() {
    const found: { status: number; path: string | undefined; closes: boolean; isComplete: boolean }[] = []
    for (let text = Buffer.concat(this.#got).toString('latin1'); text !== ''; ) {
      const [head, status] = /^HTTP\/1\.1 (\d+)[\s\S]*?\r\n\r\n/.exec(text) ?? [text, '']
      const value = (name: string) => new RegExp(`^${name}: (.*)\r$`, 'm').exec(head)?.[1]
      const rest = text.slice(head.length)
      let end = Number(value('content-length') ?? Infinity)
      if (this.exchanges[found.length]?.method === 'HEAD' || status === '204' || status === '100') end = 0
      else if (value('transfer-encoding') !== undefined) end = (rest.indexOf('0\r\n\r\n') + 1 || Infinity) + 4
      // An upgraded connection carries no more answers. Others of no length end with their connection.
      else if (status === '101' || (end === Infinity && this.caller.readableEnded && !this.#isBroken)) end = rest.length
      const closes = value('connection') === 'close'
      const isComplete = status !== '' && end <= rest.length
      if (status !== '100') found.push({ status: Number(status), path: value('x-path'), closes, isComplete })
      text = rest.slice(end)
    }
    return found
  }
}

/** Whether what one end has sent has reached the other, if that reads. */
function hasArrived(from: Socket, to: Socket): boolean {
  if (to.destroyed || to.isPaused()) return true
  if (from.destroyed || from.writableFinished) return to.readableEnded
  return to.bytesRead === from.bytesWritten
}

interface Form {
  readonly now: string
  /** What completes it. */
  readonly rest?: string
  /** Nobody takes its body. */
  readonly isUntaken?: boolean
}

const fields = (more = '') => `Host: a\r\n${more}\r\n`
const get = (path: string, more?: string) => `GET ${path} HTTP/1.1\r\n${fields(more)}`
const post = (more: string, body: string, path = '/this') => `POST ${path} HTTP/1.1\r\n${fields(`${more}\r\n`)}${body}`
const untaken = (bytes: number) => post(`Content-Length: ${bytes}`, 'x'.repeat(bytes))
const KEY = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
/** Longer than a request that comes in its place. */
const REST = 'x'.repeat(200)
const CHUNKED = 'Transfer-Encoding: chunked'

const FORMS: Record<string, Form> = {
  'no request': { now: '' },
  'half a head': { now: get('/this').slice(0, 8), rest: get('/this').slice(8) },
  get: { now: get('/this') },
  'get 1.0': { now: `GET /this HTTP/1.0\r\n${fields('Connection: keep-alive\r\n')}` },
  head: { now: get('/this').replace('GET', 'HEAD') },
  post: { now: post('Content-Length: 3', 'abc') },
  chunked: { now: post(CHUNKED, '3\r\nabc\r\n0\r\n\r\n') },
  'post, begun': { now: post('Content-Length: 201', 'a'), rest: REST },
  'chunked, begun': { now: post(CHUNKED, 'c8\r\n'), rest: `${REST}\r\n0\r\n\r\n` },
  'post, waiting for a 100': { now: post('Content-Length: 200\r\nExpect: 100-continue', ''), rest: REST },
  'untaken post': { now: untaken(300_000), isUntaken: true },
  'untaken post, all read': { now: untaken(100_000), isUntaken: true },
  upgrade: { now: get('/this', `Connection: Upgrade\r\nUpgrade: websocket\r\n${KEY}`) },
}

/** How far the answer has come. */
const RESPONSES: Record<string, (exchange: Exchange, scene: Scene) => void> = {
  nothing() {},
  head: exchange => exchange.head(4),
  half(exchange) {
    exchange.head(4)
    exchange.say(2)
  },
  'of unknown length'(exchange) {
    exchange.head(BODY_UNKNOWN)
    exchange.say(4)
  },
  complete: exchange => exchange.complete(),
  'complete, not read'(exchange, { caller }) {
    caller.pause()
    exchange.complete(MUCH.length)
  },
  204: exchange => exchange.head(BODY_UNKNOWN, 204),
  101: exchange => exchange.head(BODY_UNKNOWN, 101),
  'a body before its head': exchange => exchange.say(1),
  ended: exchange => exchange.end(),
  failed: exchange => exchange.fail(),
}

/** An exchange before: its request, and what its handler does. */
const BEFORE: Record<string, [string, (exchange: Exchange) => void] | undefined> = {
  nothing: undefined,
  ended: [get('/before'), exchange => exchange.end()],
  'a get, not ended': [get('/before'), exchange => exchange.complete()],
  'a post, not ended': [post('Content-Length: 3', 'abc', '/before'), exchange => exchange.complete()],
}

type Step = (scene: Scene) => void

interface Event {
  /** Before the stop. */
  readonly early?: Step
  readonly now?: Step
  /** When that has had its effects. */
  readonly soon?: Step
  /** `THINK_MS` after that. */
  readonly late?: Step
  /** The exchange may be cut. */
  readonly cuts?: true
}

const next: Step = scene => scene.ask(get('/next'))
const complete: Step = scene => scene.exchange?.complete()
const end: Step = scene => scene.exchange?.end()
const fail: Step = scene => scene.exchange?.fail()
const endAll: Step = scene => {
  for (const one of scene.exchanges) one.end()
}

const EVENTS: Record<string, Event> = {
  nothing: {},
  FIN: { now: scene => scene.caller.end(), cuts: true },
  RST: { now: scene => scene.reset(), cuts: true },
  junk: { now: scene => scene.send('junk\r\n\r\n'), cuts: true },
  'a stop': { now: scene => scene.stop() },
  'a stop without grace': { now: scene => scene.stop(0), cuts: true },
  rest: { now: scene => scene.send(scene.form.rest) },
  credit: { now: scene => scene.exchange?.credit() },
  complete: { now: complete },
  end: { now: end },
  fail: { now: fail },
  'end of all': { now: endAll },
  next: { now: next },
  'next, end of all': { now: next, soon: endAll },
  'next with a body': { now: scene => scene.ask(post('Content-Length: 3', 'abc', '/next')) },
  'next in a pipeline': { early: next },
  'next in a pipeline, fail': { early: next, now: fail },
  'rest and next': { now: scene => scene.ask((scene.form.rest ?? '') + get('/next')) },
  'complete, next': { now: complete, soon: next },
  'end, next': { now: end, soon: next },
  'end, next later': { now: end, late: next },
  'fail, next': { now: fail, soon: next },
}

interface Case {
  readonly form: string
  readonly response: string
  readonly before: string
  readonly event: string
}

const answersTo = (form: string) => {
  if (form === 'no request' || form === 'half a head') return ['nothing']
  return Object.keys(RESPONSES).filter(response => response !== 'complete, not read' || form === 'get')
}
const casesOf = (befores: readonly string[], events: readonly string[]): Case[] =>
  Object.keys(FORMS).flatMap(form =>
    answersTo(form).flatMap(response =>
      befores.flatMap(before => events.map(event => ({ form, response, before, event }))),
    ),
  )
const CASES = casesOf(Object.keys(BEFORE), Object.keys(EVENTS))
const STATES = casesOf(['nothing'], ['nothing'])

/** `npm test` plays one in nine: prime to the numbers of rows. */
const EVERY = short ? 9 : 1
const AT_A_TIME = 250

/** Everything that was sent has arrived, and has had its effects. */
async function settled(scenes: readonly Scene[]): Promise<void> {
  for (let quiet = 0; quiet < 4; ) {
    await new Promise(resolve => setImmediate(resolve))
    quiet = scenes.every(scene => scene.isQuiet) ? quiet + 1 : 0
  }
}

async function pass(ms: number, scenes: readonly Scene[]): Promise<void> {
  for (let passed = 0; passed < ms; passed += TICK_MS) {
    vi.advanceTimersByTime(TICK_MS)
    await settled(scenes)
  }
}

async function step(scenes: readonly Scene[], act: (scene: Scene) => unknown): Promise<void> {
  for (const scene of scenes) act(scene)
  await settled(scenes)
}

async function reach(cases: readonly Case[], secrets?: Secrets): Promise<Scene[]> {
  const scenes = cases.map(one => new Scene(one))
  for (const scene of scenes) await scene.start(secrets)
  await step(scenes, scene => scene.send(BEFORE[scene.one.before]?.[0]))
  await step(scenes, scene => BEFORE[scene.one.before]?.[1](scene.exchange!))
  await step(scenes, scene => scene.send(scene.form.now))
  await until(() => scenes.every(({ exchange, one }) => exchange !== undefined || answersTo(one.form).length === 1))
  await step(scenes, scene => scene.exchange && RESPONSES[scene.one.response]!(scene.exchange, scene))
  return scenes
}

/** Returns what is wrong. */
async function play(cases: readonly Case[], moment: Moment): Promise<string[]> {
  const scenes = await reach(cases)
  const event = (when: 'early' | 'now' | 'soon' | 'late') =>
    step(scenes, scene => EVENTS[scene.one.event]![when]?.(scene))
  await event('early')
  if (moment !== 'no stop') await step(scenes, scene => scene.stop())
  await pass(MOMENTS[moment], scenes)
  await event('now')
  vi.advanceTimersByTime(1)
  await event('soon')
  await step(scenes, scene => scene.caller.resume())
  await pass(THINK_MS, scenes)
  await event('late')
  const endedAt = Date.now()
  if (moment === 'no stop') await step(scenes, scene => scene.reset())
  await pass(AFTER_MS, scenes)
  return named(scenes, scene => faultsOf(scene, moment, endedAt))
}

function named(scenes: readonly Scene[], faultsOf: (scene: Scene) => string[]): string[] {
  return scenes.flatMap(scene => faultsOf(scene).map(fault => `${Object.values(scene.one).join(' / ')}: ${fault}`))
}

function faultsOf(scene: Scene, moment: Moment, endedAt: number): string[] {
  const { one, exchanges, form, stoppedAt = Infinity, doneAt, askedAt } = scene
  const { cuts } = EVENTS[one.event]!
  const faults = scene.faultsAtRest()
  const answers = scene.answers()
  for (const [i, { path, wholeAt }] of exchanges.entries()) {
    const answer = answers[i]
    const isSaid = answer?.path !== undefined && answer.status !== 101
    if (isSaid && answer.path !== path) faults.push(`${answer.path} in place of ${path}`)
    if (isSaid && answer.isComplete && wholeAt === undefined) faults.push(`${path} looks complete`)
    if (wholeAt !== undefined && !cuts && answer?.isComplete !== true) faults.push(`the answer of ${path} is lost`)
  }

  const at = exchanges.findLastIndex(({ path }) => path !== '/next')
  const [exchange, answer, next] = [exchanges[at], answers[at], answers[at + 1]]
  // Of a half head, nothing more is expected.
  if (form.rest !== undefined && exchange?.path !== '/this') return faults
  const wholeAt = exchange === undefined ? 1 : (exchange.wholeAt ?? 0)
  const isIdle = exchange === undefined || (answer?.isComplete && !answer.closes && answer.status !== 101)
  const isSent = form.rest === undefined || one.event === 'rest and next'
  if (askedAt !== undefined && isSent && isIdle && exchanges.at(-1)?.path !== '/next') {
    // Half of the grace may pass between two requests.
    const isOpen = moment !== 'second half' && !form.rest && askedAt < Math.max(stoppedAt, wholeAt) + GRACE_MS / 2
    // In its second half, a request may be lost that comes before its turn.
    const isEarly = wholeAt === 0 || wholeAt > askedAt || form.isUntaken || one.response === 'complete, not read'
    if (isOpen || (scene.wasOpen && !(moment === 'second half' && isEarly))) faults.push('the next request is lost')
  }
  if ((askedAt ?? 0) > stoppedAt && next?.closes === false) faults.push('does not say that it closes')

  const isWrong = one.response === 'a body before its head' || (one.response === '101' && one.form !== 'upgrade')
  const isLeft = exchange === undefined || exchange.answered || exchange.failed || isWrong
  const mayEnd = wholeAt > 0 && (!exchange?.hasBody || form.isUntaken || askedAt !== undefined)
  const untilMs = moment === 'no stop' ? endedAt : stoppedAt + GRACE_MS
  if (!isLeft && !mayEnd && !cuts && (exchange.abortedAt ?? Infinity) < untilMs) faults.push('cut')

  if (moment === 'no stop') return faults
  const isOver = isLeft || (wholeAt > 0 && !exchange.hasBody && !answer?.closes)
  if (doneAt! >= stoppedAt + (isOver ? GRACE_MS : GRACE_MS + 2 * TICK_MS)) faults.push('the stop is held up')
  return faults
}

const realNow = performance.now
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  performance.now = () => Date.now()
})
afterEach(() => {
  vi.useRealTimers()
  performance.now = realNow
})

test.each(Object.keys(MOMENTS) as Moment[])('every state and event: %s', async moment => {
  const cases = CASES.filter((_, i) => i % EVERY === 0)
  const faults: string[] = []
  for (let at = 0; at < cases.length; at += AT_A_TIME)
    faults.push(...(await play(cases.slice(at, at + AT_A_TIME), moment)))
  expect(faults).toEqual([])
})

async function expectRest(scenes: readonly Scene[], what?: string): Promise<void> {
  await step(scenes, scene => scene.reset())
  await pass(AFTER_MS, scenes)
  const faults = named(scenes, scene => scene.faultsAtRest())
  expect(faults, what).toEqual([])
}

test.each(['TCP', 'TLS'])('a reset is noticed in every state: %s', async transport => {
  await expectRest(await reach(STATES, transport === 'TLS' ? await makeSecrets() : undefined))
})

test.each([0, 1, 2, 3])('walks of many events (%i)', async batch => {
  const steps = Object.values(EVENTS).flatMap(({ early, now, soon }) =>
    [early, now, soon].filter(one => one !== undefined),
  )
  const seed = firstSeed()
  const random = new Random(`${seed}/${batch}`)
  const scenes = await reach(STATES)
  for (let n = 0; n < 8; n++) {
    // None, or several in one turn.
    for (const scene of scenes) while (random.oneIn(2)) random.pick(steps)(scene)
    await pass(random.oneIn(2) ? 0 : TICK_MS, scenes)
  }
  for (const scene of scenes) scene.caller.resume()
  await expectRest(scenes, `TEST_SEED=${seed}`)
})
