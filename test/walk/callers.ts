/** The callers: each plays one exchange, and leaves for good when the walk decides. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import type { Readable } from 'node:stream'
import { request } from 'undici'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import type { Random } from '../fuzz/random.ts'
import { chunk } from '../support/http1-wire.ts'
import { Answer, readAnswers } from './answers.ts'
import { type Behaviour, queryOf, REQUEST_FILL } from './upstream.ts'
import { HOOK, HOST, HOSTILE_HOST, RUNTIME, type World } from './world.ts'

/** `hostile`: over the hop, to a client that answers but consumes nothing of a request. `attached`: a server of an embedder's. */
export type Entry = 'direct' | 'hop' | 'hostile' | 'router' | 'attached' | 'fetch' | 'dispatcher'
export type Protocol = 'http1' | 'http2' | 'upgrade' | 'upgrade over http2'

type Manner = 'whole' | 'cancels' | 'resets' | 'half-closes' | 'slow' | 'reads nothing'
const MANNERS: readonly Manner[] = ['whole', 'whole', 'cancels', 'resets', 'half-closes', 'slow', 'reads nothing']

export interface Plan {
  readonly entry: Entry
  readonly address: string
  readonly protocol: Protocol
  /** The protocol of the upstream. */
  readonly behind: 'http1' | 'http2'
  /** Servers may store it, if it has a body. */
  readonly webhook: boolean
  readonly manner: Manner
  /** Its request never ends. */
  readonly endless: boolean
  readonly bodyBytes: number
  /** When a leaving caller leaves, and how slow a slow one is. */
  readonly afterMs: number
  readonly behaviour: Behaviour
  /** The code of RST_STREAM. */
  readonly code: number
  readonly windowBytes: number
  /** Requests in sequence on an HTTP/1.1 connection. */
  readonly pipelined: number
  /** HEAD instead of GET. */
  readonly isHead: boolean
  readonly framing: 'length' | 'pieces' | 'pieces and trailers'
  /** Waits for nothing, although it says so. */
  readonly expects: boolean
}

const SIZES = [0, 0, 1, 100, 5000, 60_000, 70_000, 300_000, 1_000_000]
const CODES = [0, 1, 2, 5, 7, 8, 11, 13]

const ALONE: readonly Entry[] = ['direct', 'direct', 'router', 'fetch', 'dispatcher']
const ENTRIES: readonly Entry[] = [...ALONE, 'hop', 'hop', 'hop', 'attached', 'attached', 'hostile']

export function makePlan(random: Random, hasFar: boolean): Plan {
  const entry = random.pick(hasFar ? ENTRIES : ALONE)
  const upgrades = !['hostile', 'fetch', 'dispatcher'].includes(entry) && random.oneIn(5)
  const two = entry !== 'attached' && random.oneIn(2)
  const protocol = upgrades ? (two ? 'upgrade over http2' : 'upgrade') : two ? 'http2' : 'http1'
  const manner = random.pick(MANNERS)
  const bodyBytes = entry === 'hostile' ? 300_000 : random.pick(SIZES)
  const bytes = random.pick(SIZES)
  return {
    entry,
    address: `127.0.1.${random.between(1, 4)}`,
    protocol,
    behind: upgrades || random.oneIn(2) ? 'http1' : 'http2',
    webhook: !upgrades && entry !== 'router' && random.oneIn(2),
    manner,
    endless: random.oneIn(5),
    bodyBytes,
    afterMs: random.int(30),
    behaviour: {
      when: random.oneIn(2) ? 'early' : 'read',
      reads: !random.oneIn(4),
      bytes,
      length: random.oneIn(2),
      end: random.pick(['whole', 'whole', 'whole', 'cut', 'hang', 'half']),
      pieceBytes: pieceOf(random, bytes),
      trailerBytes: random.pick([0, 0, 10, 8000, 15_000]),
      hints: random.pick([0, 0, 0, 1, 20]),
      requestBytes: upgrades ? 0 : bodyBytes,
    },
    code: random.pick(CODES),
    windowBytes: random.pick([0, 1000, 65_535, 1_000_000]),
    pipelined: random.oneIn(4) ? random.between(2, 4) : 1,
    isHead: random.oneIn(4),
    framing: random.pick(['length', 'pieces', 'pieces and trailers']),
    expects: random.oneIn(6),
  }
}

/** Few bytes at a time, but no more than a thousand pieces. */
function pieceOf(random: Random, bytes: number): number {
  return Math.max(random.pick([16_384, 16_384, 1500, 100, 1]), Math.ceil(bytes / 1000))
}

const CANARY: Behaviour = {
  when: 'early',
  reads: true,
  bytes: 60_000,
  length: true,
  end: 'whole',
  pieceBytes: 16_384,
  trailerBytes: 0,
  hints: 0,
  requestBytes: 0,
}

/** A caller whose answers arrive complete and wait for it, as many as it can make wait. */
export function greedyPlan(random: Random, endless: boolean): Plan {
  const behaviour = { ...CANARY, pieceBytes: pieceOf(random, CANARY.bytes) }
  const greedy = {
    entry: 'direct',
    address: '127.0.1.1',
    protocol: 'http2',
    behind: 'http1',
    webhook: false,
    manner: 'reads nothing',
  } as const
  return {
    ...makePlan(random, false),
    ...greedy,
    behaviour,
    endless,
    isHead: false,
    bodyBytes: 0,
    windowBytes: 0,
    pipelined: 4,
  }
}

/** A request that waits for a client that does not consume it. */
export function hostilePlan(random: Random): Plan {
  const protocol = random.pick(['http1', 'http2'] as const)
  return {
    ...makePlan(random, true),
    entry: 'hostile',
    protocol,
    manner: 'whole',
    endless: false,
    bodyBytes: 300_000,
    pipelined: 1,
  }
}

/** A caller in progress. `done` resolves when it has nothing more to do by itself; `end` makes it leave. */
export interface Playing {
  readonly done: Promise<unknown>
  /** Bytes of answers that arrived complete at its server, and for which it has given no credit. */
  readonly heldBytes?: () => number
  end(): void
}

/** What fits into the first window of a session's stream, and what HTTP/2 accepts of it without further credit. */
const ARRIVES_BYTES = 60_000
const FRAMED_BYTES = 45_000

export function play(world: World, plan: Plan): Playing {
  const told = (answer: Answer, isHead: boolean, seesTrailers?: boolean) => {
    const fault = plan.entry === 'hostile' ? undefined : answer.fault(plan.behaviour, isHead, seesTrailers)
    if (fault !== undefined) world.said.errors.push(`an answer: ${fault}: ${JSON.stringify(plan)}`)
  }
  if (plan.entry === 'fetch' || plan.entry === 'dispatcher') return playEmbedded(world, plan, told)
  const { port } = {
    direct: () => world.near.publicAddress!,
    hop: () => world.far!.publicAddress!,
    hostile: () => world.far!.publicAddress!,
    router: () => world.service.address,
    attached: () => world.host.address() as AddressInfo,
  }[plan.entry]()
  return plan.protocol.includes('http2') ? playHttp2(port, plan, told) : playHttp1(port, plan, told)
}

/** Called with each answer that looks whole. */
type Told = (answer: Answer, isHead: boolean, seesTrailers?: boolean) => void

function later(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}

function hostOf({ entry }: Plan): string {
  return entry === 'hostile' ? HOSTILE_HOST : HOST
}

function pathOf({ behind, behaviour, webhook }: Plan): string {
  return `/${behind}${webhook ? HOOK : ''}${queryOf(behaviour)}`
}

/** A body in pieces, as HTTP/1.1 frames them. */
function piecesOf({ behaviour: { pieceBytes }, framing }: Plan, bytes: number): Buffer {
  const size = Math.max(pieceBytes, Math.ceil(bytes / 1000))
  const count = Math.ceil(bytes / size)
  const pieces = Array.from({ length: count }, (_, i) =>
    chunk(Buffer.alloc(Math.min(size, bytes - i * size), REQUEST_FILL)),
  )
  const trailer = framing === 'pieces and trailers' ? `x-trailer: ${'r'.repeat(TRAILER_BYTES)}\r\n` : ''
  return Buffer.concat([...pieces, Buffer.from(`0\r\n${trailer}\r\n`)])
}

const TRAILER_BYTES = 3000

function playHttp1(port: number, plan: Plan, told: Told): Playing {
  const { manner, protocol, bodyBytes, afterMs } = plan
  const socket = connect({ port, host: '127.0.0.1', localAddress: plan.address, allowHalfOpen: true })
  socket.on('error', () => {})
  const closed = new Promise<void>(resolve => socket.once('close', () => resolve()).once('end', () => resolve()))
  const upgrade = protocol === 'upgrade'
  const body = upgrade ? 0 : bodyBytes
  const endless = plan.endless && !upgrade
  const isHead = (index: number) => plan.isHead && !upgrade && body === 0 && !(endless && index === plan.pipelined - 1)
  for (let i = 0; i < plan.pipelined; i++) {
    const last = i === plan.pipelined - 1
    const isEndless = endless && last
    const inPieces = body > 0 && !isEndless && plan.framing !== 'length'
    const method = isHead(i) ? 'HEAD' : body > 0 || endless ? 'POST' : 'GET'
    const fields = upgrade
      ? 'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n'
      : `${last ? 'connection: close\r\n' : ''}${plan.expects && body > 0 ? 'expect: 100-continue\r\n' : ''}${inPieces ? 'transfer-encoding: chunked' : `content-length: ${isEndless ? body + 100_000 : body}`}\r\n`
    socket.write(`${method} ${pathOf(plan)} HTTP/1.1\r\nhost: ${hostOf(plan)}\r\n${fields}\r\n`)
    if (body > 0) socket.write(inPieces ? piecesOf(plan, body) : Buffer.alloc(body, REQUEST_FILL))
    if (upgrade) {
      if (bodyBytes > 0) socket.write(Buffer.alloc(bodyBytes, 'w'))
      break
    }
  }
  if (manner === 'reads nothing') socket.pause()
  else {
    const pauseMs = manner === 'slow' ? afterMs / 4 : 0
    readAnswers(socket, pauseMs, isHead, (answer, i) => told(answer, isHead(i))).catch(() => socket.resume())
  }
  // A FIN behind bytes that we have stopped reading goes unnoticed; a reset does not.
  const leave = () => (body > 0 ? resetSocket(socket) : socket.destroy())
  if (manner === 'cancels') setTimeout(leave, afterMs)
  if (manner === 'resets') setTimeout(() => resetSocket(socket), afterMs)
  if (manner === 'half-closes') setTimeout(() => socket.end(), afterMs)
  return { done: closed, end: leave }
}

function playHttp2(port: number, plan: Plan, told: Told): Playing {
  const { manner, protocol, bodyBytes, afterMs, code } = plan
  const upgrade = protocol === 'upgrade over http2'
  const session = connectHttp2(`http://${HOST}`, {
    createConnection: () => connect({ port, host: '127.0.0.1', localAddress: plan.address }),
    settings: { initialWindowSize: manner === 'reads nothing' || manner === 'slow' ? plan.windowBytes : 65_535 },
  })
  session.on('error', () => {})
  const { endless } = plan
  const waiting = new Set<ClientHttp2Stream>()
  const begin = () => {
    const head = upgrade
      ? { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' }
      : {
          ':method': bodyBytes > 0 || endless ? 'POST' : plan.isHead ? 'HEAD' : 'GET',
          te: 'trailers',
          ...(plan.expects && bodyBytes > 0 ? { expect: '100-continue' } : {}),
        }
    const stream = session.request({ ':path': pathOf(plan), ':authority': hostOf(plan), ':scheme': 'http', ...head }, {
      endStream: bodyBytes === 0 && !endless && !upgrade,
      waitForTrailers: plan.framing === 'pieces and trailers' && bodyBytes > 0 && !endless && !upgrade,
    } as object)
    stream.on('error', () => {})
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-trailer': 'r'.repeat(TRAILER_BYTES) }))
    // A reset of its own with NO_ERROR looks like an end to the caller.
    if (!upgrade && manner !== 'reads nothing' && manner !== 'resets') watch(session, stream, told)
    // A webhook that is not a POST, and one that is stored, get short answers from us.
    if (isHeld(plan)) stream.once('response', head => head[':status'] === 200 && waiting.add(stream))
    const closed = new Promise<void>(resolve =>
      stream.once('close', () => {
        waiting.delete(stream)
        resolve()
      }),
    )
    const body = bodyBytes > 0 ? Buffer.alloc(bodyBytes, upgrade ? 'w' : REQUEST_FILL) : undefined
    if (upgrade) {
      stream.once('response', () => body && stream.write(body))
      if (manner === 'half-closes') setTimeout(() => stream.end(), afterMs)
    } else if (endless) body && stream.write(body)
    else if (body !== undefined) stream.end(body)
    if (manner === 'slow') {
      stream.on('data', () => {
        stream.pause()
        setTimeout(() => stream.resume(), afterMs / 4)
      })
    } else if (manner !== 'reads nothing') stream.resume()
    if (manner === 'cancels') setTimeout(() => stream.close(8), afterMs)
    if (manner === 'resets') setTimeout(() => stream.close(code), afterMs)
    return closed
  }
  const ready = new Promise<void>(resolve => {
    session.once('remoteSettings', () => resolve())
    session.once('close', () => resolve())
  })
  const done = ready.then(() => {
    if (session.destroyed) return
    if (manner === 'half-closes' && !upgrade) setTimeout(() => session.destroy(), afterMs)
    return Promise.all(Array.from({ length: plan.pipelined }, begin))
  })
  const heldBytes = () => waiting.size * (ARRIVES_BYTES - FRAMED_BYTES)
  return { done: done.then(() => session.destroy()), heldBytes, end: () => session.destroy() }
}

function watch(session: ClientHttp2Session, stream: ClientHttp2Stream, told: Told): void {
  const answer = new Answer()
  let hasEnded = false
  stream.on('response', head => {
    answer.status = Number(head[':status'])
  })
  stream.on('data', (chunk: Buffer) => answer.take(chunk))
  stream.on('trailers', trailers => {
    answer.trailerBytes = String(trailers['x-trailer'] ?? '').length
  })
  stream.on('end', () => {
    hasEnded = true
  })
  stream.on('close', () => {
    const isWhole = hasEnded && stream.rstCode === 0 && !stream.aborted && !session.destroyed
    if (isWhole) told(answer, stream.sentHeaders[':method'] === 'HEAD')
  })
}

/** A plan whose answers are sure to wait at the server. */
function isHeld({
  entry,
  manner,
  windowBytes,
  protocol,
  behaviour: { bytes, end, when, reads },
  endless,
}: Plan): boolean {
  const isAnswered = when === 'early' || !reads || !endless
  const isWhole = bytes >= ARRIVES_BYTES && (end === 'whole' || end === 'half')
  return (
    entry === 'direct' &&
    protocol === 'http2' &&
    manner === 'reads nothing' &&
    windowBytes === 0 &&
    isAnswered &&
    isWhole
  )
}

function playEmbedded(world: World, plan: Plan, told: Told): Playing {
  const { manner, bodyBytes, afterMs, endless, entry } = plan
  const server = world.far !== undefined && plan.code % 2 === 1 ? world.far : world.near
  const ended = new AbortController()
  const { signal } = ended
  const url = `http://${HOST}${pathOf(plan)}`
  const body = endless ? endlessBody(signal) : bodyBytes > 0 ? Buffer.alloc(bodyBytes, REQUEST_FILL) : null
  const method = body !== null ? 'POST' : plan.isHead ? 'HEAD' : 'GET'
  if (manner === 'cancels' || manner === 'resets') setTimeout(() => ended.abort(), afterMs)
  const run = async () => {
    const answer = new Answer()
    const take = async (chunks: AsyncIterable<Uint8Array> | null) => {
      for await (const chunk of chunks ?? []) {
        answer.take(chunk)
        if (manner === 'slow') await later(afterMs / 4)
        if (manner === 'half-closes') return
      }
      told(answer, method === 'HEAD', entry === 'dispatcher')
    }
    if (entry === 'fetch') {
      const init = { method, body, signal, duplex: 'half' } as RequestInit
      const response = await server.fetch(RUNTIME, new Request(url, init))
      answer.status = response.status
      if (manner !== 'reads nothing') await take(response.body)
    } else {
      const options = { method, body: body as Readable | Buffer | null, signal, dispatcher: server.dispatcher(RUNTIME) }
      const response = await request(url, options)
      answer.status = response.statusCode
      response.body
        .on('error', () => {})
        .on('end', () => {
          answer.trailerBytes = String(response.trailers['x-trailer'] ?? '').length
        })
      if (manner === 'reads nothing') await new Promise(resolve => signal.addEventListener('abort', resolve))
      else await take(response.body)
    }
  }
  return { done: run().catch(() => {}), end: () => ended.abort() }
}

/** Sends part of a body, and then nothing until its caller has left. */
function endlessBody(signal: AbortSignal): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      controller.enqueue(new Uint8Array(10_000).fill(REQUEST_FILL))
      signal.addEventListener('abort', () => controller.error(signal.reason))
    },
  })
}

/** A small request of an innocent caller. Resolves to what went wrong, or undefined. */
export async function canary(world: World, entry: 'direct' | 'hop'): Promise<string | undefined> {
  const { port } = (entry === 'direct' ? world.near : world.far!).publicAddress!
  const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.2.1' })
  socket.on('error', () => {})
  socket.write(`GET /http1${queryOf(CANARY)} HTTP/1.1\r\nhost: ${HOST}\r\nconnection: close\r\n\r\n`)
  let bytes = 0
  let head = ''
  socket.on('data', chunk => {
    if (head === '') head = chunk.toString('latin1', 0, 1024)
    bytes += chunk.length
  })
  await new Promise(resolve => socket.once('close', resolve))
  const [status = ''] = head.split('\r\n')
  const [, code = ''] = /^sallyport-error: (.*)\r$/m.exec(head) ?? []
  return status === 'HTTP/1.1 200 OK' && bytes > CANARY.bytes
    ? undefined
    : `${entry}: ${status} ${code}, ${bytes} bytes`
}
