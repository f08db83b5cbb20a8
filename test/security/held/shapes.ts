/** What outsiders fill: what each of many callers sends, and what its target does. */
import { createHmac } from 'node:crypto'
import type { Socket } from 'node:net'
import { webSocketAccept } from '../../../protocol/http/http1/websocket.ts'
import {
  ACK,
  block,
  data,
  END_HEADERS,
  END_STREAM,
  ended,
  type Fields,
  frame,
  framesOf,
  PREFACE,
  setting,
  settings,
  TYPE,
  window,
} from '../../support/http2-frames.ts'

/** Of the signatures of webhooks. */
export const SECRET = 'a secret'

/** Where callers call. */
export interface Place {
  readonly authority: string
  /** Nearly as long as a head may be. */
  readonly fieldBytes: number
}

export interface Shape {
  readonly callers: number
  /** How much of each counts at least: with less, the test would be one of nothing. */
  readonly counts: number
  /** The bytes of one caller. */
  readonly sends: (place: Place) => string | Buffer
  /** And those that it sends once it has been answered. */
  readonly later?: Buffer
  /** Then it leaves. */
  readonly leaves?: true
  /** It reads nothing. */
  readonly deaf?: true
}

interface Target {
  readonly scheme?: 'h2c'
  /** It takes only signed webhooks. */
  readonly verify?: true
  readonly serve: (socket: Socket) => void
}

const KIB = 1024
const MIB = 1024 * KIB

let texts = 0
/** No two are equal, since equal ones may be stored once. */
const text = (length: number) => `${texts++}`.padEnd(length, '~')

const CHUNKED = 'Transfer-Encoding: chunked'

const silent = (socket: Socket) => void socket.resume()

/** Answers nothing over HTTP/2. */
const mute = (windowBytes: number) => (socket: Socket) => {
  const streams = setting('maxConcurrentStreams', 1000)
  socket.write(settings(setting('initialWindowSize', windowBytes), streams, setting('enableConnect', 1)))
  socket.write(window(0, 64 * MIB))
  socket.once('data', () => socket.write(frame(TYPE.settings, ACK, 0))).resume()
}

/** Answers each read in this way. */
const answering = (answer: string) => (socket: Socket) => void socket.on('data', () => socket.write(answer))

/** Each has a route of its name. */
export const TARGETS: Record<string, Target> = {
  silent: { serve: silent },
  hook: { verify: true, serve: silent },
  h2: { scheme: 'h2c', serve: mute(MIB) },
  /** Grants no window. */
  stuck: { scheme: 'h2c', serve: mute(0) },
  stuckHook: { scheme: 'h2c', verify: true, serve: mute(0) },
  huge: { serve: answering(`HTTP/1.1 200 OK\r\nContent-Length: ${MIB}\r\n\r\n${'x'.repeat(MIB)}`) },
  tiny: { serve: answering(`HTTP/1.1 200 OK\r\n${CHUNKED}\r\n\r\n${'1\r\nx\r\n'.repeat(200_000)}`) },
  /** Answers at the end of a request. */
  prompt: {
    serve: socket =>
      socket.on('data', bytes => {
        if (bytes.toString('latin1').endsWith('0\r\n\r\n')) socket.write('HTTP/1.1 204 No Content\r\n\r\n')
      }),
  },
  early: { scheme: 'h2c', serve: atOnce(early) },
  /** Accepts WebSockets, and has nothing to say. */
  quiet: { scheme: 'h2c', serve: atOnce(stream => section(stream, OK, END_STREAM)) },
  /** Takes the handshake, and nothing more. */
  websocket: {
    serve: socket =>
      socket.once('data', data => {
        socket.pause()
        const key = /sec-websocket-key: *(.*)\r/i.exec(data.toString('latin1'))![1]!
        const lines = ['HTTP/1.1 101 Switching Protocols', 'Connection: Upgrade', 'Upgrade: websocket']
        socket.write([...lines, `Sec-WebSocket-Accept: ${webSocketAccept(key)}`, '', ''].join('\r\n'))
      }),
  },
}

/** Answers each request at once with these frames, and neither takes nor ends what follows it. */
function atOnce(answer: (stream: number) => Buffer): (socket: Socket) => void {
  return socket => {
    mute(0)(socket)
    let bytes = Buffer.alloc(0)
    let answered = 0
    socket.on('data', (more: Buffer) => {
      bytes = Buffer.concat([bytes, more])
      const heads = framesOf(bytes.subarray(PREFACE.length)).filter(({ type }) => type === TYPE.headers)
      for (const { stream } of heads.slice(answered)) socket.write(answer(stream))
      answered = heads.length
    })
  }
}

const OK: Fields = [[':status', '200']]

function early(stream: number): Buffer {
  return Buffer.concat([section(stream, [...OK, ['content-length', '2']], 0), data(stream, 'ok')])
}

const WEBSOCKET = [
  ...['Connection: upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'],
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
]
const signed = (signature: string) => `X-Hub-Signature-256: sha256=${signature}`
const FORGED = signed('0'.repeat(64))
const webhook = (request: string, at: Place, bytes: number) => {
  const body = text(bytes)
  return announced(request, at, bytes, signed(createHmac('sha256', SECRET).update(body).digest('hex'))) + body
}

/** A head without the empty line at its end. */
function begun(request: string, { authority }: Place, ...lines: string[]): string {
  return [`${request} HTTP/1.1`, `Host: ${authority}`, ...lines].join('\r\n')
}
const whole = (request: string, place: Place, ...lines: string[]) => `${begun(request, place, ...lines)}\r\n\r\n`
const large = ({ fieldBytes }: Place) => `X-Large: ${text(fieldBytes)}`
const announced = (request: string, place: Place, bytes: number, ...lines: string[]) =>
  whole(request, place, `Content-Length: ${bytes}`, ...lines)

export const HTTP1: Record<string, Shape> = {
  'a head': { callers: 1000, counts: 28_000, sends: at => whole('GET /silent', at, large(at)) },
  'a part of a head': { callers: 1000, counts: 28_000, sends: at => begun('GET /silent', at, large(at)) },
  HEAD: { callers: 1000, counts: 28_000, sends: at => whole('HEAD /silent', at, large(at)) },
  trailers: {
    callers: 1000,
    counts: 28_000,
    sends: at => `${whole('POST /silent', at, CHUNKED)}0\r\n${large(at)}\r\n\r\n`,
  },
  'a part of trailers': {
    callers: 1000,
    counts: 28_000,
    sends: at => `${whole('POST /silent', at, CHUNKED)}0\r\n${large(at)}`,
  },
  'a small body': {
    callers: 800,
    counts: 30_000,
    sends: at => announced('POST /stuck', at, 30_000) + text(30_000),
  },
  'a large body': {
    callers: 300,
    counts: 64 * KIB,
    sends: at => announced('POST /stuck', at, 1_000_000) + text(1_000_000),
  },
  'chunks of one byte': {
    callers: 150,
    counts: 30_000,
    sends: at => whole('POST /stuck', at, CHUNKED) + '1\r\nx\r\n'.repeat(30_000),
  },
  'nothing, behind a large body': {
    callers: 600,
    counts: 0,
    sends: at => `${whole('POST /prompt', at, CHUNKED)}3f800\r\n${'x'.repeat(0x3f800)}\r\n0\r\n\r\n`,
  },
  'bodies that their target leaves behind its answers': {
    callers: 50,
    counts: 10 * 30_000,
    sends: at => (announced('POST /early', at, 30_000) + text(30_000)).repeat(16),
  },
  'a pipeline': { callers: 400, counts: 64 * KIB, sends: at => whole('GET /silent', at).repeat(4000) },
  'a WebSocket without its answer': {
    callers: 400,
    counts: 64 * KIB,
    sends: at => whole('GET /silent', at, ...WEBSOCKET) + text(500_000),
  },
  'a WebSocket that its target does not read': {
    callers: 60,
    counts: 64 * KIB,
    sends: at => whole('GET /websocket', at, ...WEBSOCKET),
    later: Buffer.alloc(8 * MIB),
  },
  'a WebSocket whose both ends have ended': {
    callers: 500,
    counts: 50_000,
    sends: at => whole('GET /quiet', at, ...WEBSOCKET),
    later: Buffer.alloc(60_000),
    leaves: true,
  },
  'a webhook before its verdict': {
    callers: 700,
    counts: 50_000,
    sends: at => announced('POST /hook', at, 60_000, FORGED) + text(59_000),
  },
  'a small webhook behind its verdict': {
    callers: 500,
    counts: 60_000,
    sends: at => webhook('POST /stuckHook', at, 60_000),
  },
  'a large webhook behind its verdict': {
    callers: 100,
    counts: 100_000,
    sends: at => webhook('POST /stuckHook', at, 200_000),
  },
}

/** For a runtime that has an inbox. */
export const INBOX: Record<string, Shape> = {
  'a webhook that is arriving': {
    callers: 250,
    counts: 50_000,
    sends: at => announced('POST /inbox', at, 60_000) + text(59_000),
  },
  'a large webhook that is arriving': {
    callers: 40,
    counts: 200_000,
    sends: at => announced('POST /inbox', at, 400_000) + text(390_000),
  },
}

/** Requests on streams of one connection. `windowBytes`: how much it takes of each answer. */
function streams(count: number, each: (id: number) => Buffer[], windowBytes = MIB): Buffer {
  const begin = [PREFACE, settings(setting('initialWindowSize', windowBytes)), frame(TYPE.settings, ACK, 0)]
  const requests = Array.from({ length: count }, (_, i) => each(2 * i + 1))
  return Buffer.concat([...begin, window(0, 16 * MIB), ...requests.flat()])
}

const MOST_FRAME_BYTES = 16 * KIB

/** HEADERS, and CONTINUATION for what does not fit into one frame. `isWhole`: no more fields follow. */
function section(id: number, list: Fields, flags: number, isWhole = true): Buffer {
  const bytes = block(list)
  const frames: Buffer[] = []
  for (let at = 0; at < bytes.length; at += MOST_FRAME_BYTES) {
    const last = isWhole && at + MOST_FRAME_BYTES >= bytes.length ? END_HEADERS : 0
    const part = bytes.subarray(at, at + MOST_FRAME_BYTES)
    frames.push(at === 0 ? frame(TYPE.headers, flags | last, id, part) : frame(TYPE.continuation, last, id, part))
  }
  return Buffer.concat(frames)
}

function fields(request: string, { authority }: Place, ...more: Fields): Fields {
  const [method, path] = request.split(' ') as [string, string]
  return [[':method', method], [':scheme', 'http'], [':path', path], [':authority', authority], ...more]
}
const only = (id: number, request: string, at: Place, ...more: Fields) =>
  section(id, fields(request, at, ...more), END_STREAM)
const first = (id: number, request: string, at: Place, ...more: Fields) => section(id, fields(request, at, ...more), 0)
const xLarge = ({ fieldBytes }: Place): Fields => [['x-large', text(fieldBytes)]]

const HANDSHAKE: Fields = [
  [':protocol', 'websocket'],
  ['sec-websocket-version', '13'],
]

const BODY_BYTES = 60_000
const FRAME_BYTES = 15_000
const body = (id: number) => new Array(BODY_BYTES / FRAME_BYTES).fill(id).map(id => data(id, text(FRAME_BYTES)))

export const HTTP2: Record<string, Shape> = {
  heads: {
    callers: 15,
    counts: 100 * 28_000,
    sends: at => streams(100, id => [only(id, 'GET /h2', at, ...xLarge(at))]),
  },
  'a part of a head': {
    callers: 800,
    counts: 40_000,
    sends: at => streams(1, id => [section(id, fields('GET /h2', at, ['x-large', text(45_000)]), 0, false)]),
  },
  trailers: {
    callers: 15,
    counts: 100 * 28_000,
    sends: at => streams(100, id => [first(id, 'POST /h2', at), section(id, xLarge(at), END_STREAM)]),
  },
  'requests without a body': {
    callers: 100,
    counts: 100 * KIB,
    sends: at => streams(100, id => [only(id, 'GET /h2', at)]),
  },
  HEAD: { callers: 100, counts: 100 * KIB, sends: at => streams(100, id => [only(id, 'HEAD /h2', at)]) },
  bodies: {
    callers: 40,
    counts: 16 * BODY_BYTES,
    sends: at => streams(16, id => [first(id, 'POST /stuck', at), ...body(id)]),
  },
  'bodies that may be sent again': {
    callers: 40,
    counts: 16 * BODY_BYTES,
    sends: at => streams(16, id => [first(id, 'POST /h2', at), ...body(id), ended(id, '')]),
  },
  'frames of one byte': {
    callers: 25,
    counts: 16 * 10_000,
    sends: at => streams(16, id => [first(id, 'POST /stuck', at), ...new Array(10_000).fill(data(id, 'x'))]),
  },
  'WebSockets without their answer': {
    callers: 40,
    counts: 16 * BODY_BYTES,
    sends: at => streams(16, id => [first(id, 'CONNECT /silent', at, ...HANDSHAKE), ...body(id)]),
  },
  'WebSockets whose both ends have ended': {
    callers: 40,
    counts: 16 * BODY_BYTES,
    sends: at => streams(16, id => [first(id, 'CONNECT /quiet', at, ...HANDSHAKE), ...body(id), ended(id, '')]),
  },
  'answers of the target': {
    callers: 20,
    counts: 30 * 64 * KIB,
    sends: at => streams(30, id => [only(id, 'GET /huge', at)], 0),
  },
  'answers in chunks of one byte': {
    callers: 10,
    counts: 20 * 10_000,
    sends: at => streams(20, id => [only(id, 'GET /tiny', at)], 0),
  },
  'answers of ours': {
    callers: 100,
    counts: 100 * KIB,
    sends: at => streams(100, id => [only(id, 'GET /fixed', at)], 0),
  },
  'errors of ours': {
    callers: 100,
    counts: 40 * KIB,
    sends: at => streams(100, id => [only(id, 'GET /nowhere', at)], 0),
  },
  'webhooks before their verdict': {
    callers: 40,
    counts: 16 * BODY_BYTES,
    sends: at => {
      const signature: Fields = [['x-hub-signature-256', `sha256=${'0'.repeat(64)}`]]
      return streams(16, id => [first(id, 'POST /hook', at, ...signature), ...body(id)])
    },
  },
}
