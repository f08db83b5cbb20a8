import type { HttpRequest, RequestSink } from '../../../protocol/exchange.ts'
import { ConnectionSet } from '../../../protocol/http/connection-set.ts'
import { serveHttp2 } from '../../../protocol/http/http2/server-session.ts'
import {
  bytes,
  continuation,
  data,
  END_HEADERS,
  END_STREAM,
  type Fields,
  field,
  frame,
  framesOf,
  goaway,
  headers,
  indexed,
  NEWEST,
  PADDED,
  PREFACE,
  PRIORITY,
  priority,
  reset,
  setting,
  settings,
  TYPE,
  uint32,
  window,
} from '../../support/http2-frames.ts'
import { FakeSocket, LendingReader, turn } from '../fake-socket.ts'
import { canonicalHeaders, canonicalRequestHeaders, holds, same } from '../holds.ts'
import { cut, mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const MORE: Fields = [
  ['te', 'trailers'],
  ['expect', '100-continue'],
  ['cookie', 'a=b'],
  ['x-long', 'x'.repeat(5_000)],
]
const ODD: Fields = [
  ['content-length', '5'],
  ['connection', 'close'],
  ['x bad', ''],
]

function anyBlock(random: Random, isOdd: boolean): Buffer {
  const isWebSocket = random.oneIn(8)
  const fields: Fields = [
    [':method', isWebSocket ? 'CONNECT' : random.pick(['GET', 'POST', 'POST', 'HEAD'])],
    [':scheme', 'http'],
    [':path', '/'],
    [':authority', 'demo.test'],
    ...(isWebSocket
      ? ([
          [':protocol', 'websocket'],
          ['sec-websocket-version', '13'],
        ] as const)
      : []),
    ...(random.oneIn(3) ? [random.pick(isOdd ? ODD : MORE)] : []),
  ]
  const table = isOdd
    ? bytes(NEWEST)
    : random.pick([bytes(), indexed('x-kept', '1'), bytes(indexed('x-kept', '2'), NEWEST)])
  return bytes(...fields.map(([name, value]) => field(name, value)), table)
}

/** A head or trailers in one frame or more, with what may be in front of and behind its block. */
function anyHead(id: number, block: Buffer, flags: number, random: Random, isOdd: boolean): Buffer {
  const rest = random.oneIn(4) ? random.int(block.length) : block.length
  const ends = rest === block.length ? END_HEADERS : 0
  const depends = random.oneIn(4) ? bytes(uint32(isOdd ? id : 99), 15) : bytes()
  const padding = random.oneIn(4) ? random.int(20) : -1
  const payload = bytes(
    padding < 0 ? '' : padding,
    depends,
    block.subarray(0, rest),
    Buffer.alloc(Math.max(0, padding)),
  )
  const more = (depends.length > 0 ? PRIORITY : 0) | (padding < 0 ? 0 : PADDED)
  const first = headers(id, payload, flags | ends | more)
  return ends !== 0 ? first : bytes(first, continuation(id, block.subarray(rest)))
}

/** Frames of a caller that obeys the rules, or most of them. */
function anyFrames(random: Random): Buffer {
  const all = [PREFACE, settings()]
  const open: number[] = []
  const isWild = random.oneIn(3)
  const isOdd = () => isWild && random.oneIn(8)
  const last = () => (random.oneIn(2) ? END_STREAM : 0)
  for (let left = random.between(1, 30), next = 1; left > 0; left--) {
    const kind = random.int(12)
    const id = isOdd() ? random.int(20) : (open.at(-1 - random.int(2)) ?? 0)
    const ends = isOdd() ? 0 : last()
    if (kind < 3 || id === 0) {
      all.push(anyHead(next, anyBlock(random, isOdd()), ends, random, isOdd()))
      if (ends === 0) open.push(next)
      next += 2
      continue
    }
    if (kind < 6) all.push(data(id, 'x'.repeat(random.size(16_384)), ends))
    else if (kind === 6) all.push(data(id, bytes(2, 'hello', 0, 0), ends | PADDED))
    else if (kind === 7) all.push(anyHead(id, field('x-end', '1'), END_STREAM, random, isOdd()))
    else if (kind === 8) all.push(window(random.oneIn(2) ? 0 : id, isOdd() ? 2 ** 31 - 1 : random.between(1, 65_535)))
    else if (kind === 9) all.push(settings(setting('initialWindowSize', random.pick([0, 1, 65_535]))), priority(99))
    else if (kind === 10) all.push(frame(random.pick([TYPE.ping, TYPE.unknown]), random.int(2), 0, random.bytes(8)))
    else if (isOdd()) all.push(frame(random.int(12), random.int(256), id, random.bytes(random.size(16))))
    else if (random.oneIn(4)) all.push(reset(id))
    const isOver = (kind < 7 && ends !== 0) || kind === 7 || (kind === 11 && all.at(-1)![3] === TYPE.reset)
    if (isOver) open.splice(open.indexOf(id), 1)
  }
  if (random.oneIn(20)) all.push(goaway(0))
  return Buffer.concat(all)
}

interface Seen {
  readonly request: HttpRequest
  body: string
  trailers: readonly string[] | undefined
  aborted: boolean
}

/** What becomes of `pieces` on a connection. No request begins before all of them have been read, so their cut makes no difference. */
async function serve(pieces: readonly Uint8Array[], atOnce: boolean): Promise<unknown> {
  const socket = new FakeSocket()
  const seen: Seen[] = []
  const refused: string[] = []
  const connections = new ConnectionSet(10)
  const connection = serveHttp2(socket.asSocket, {
    reader: new LendingReader(),
    connections,
    onBadRequest: ({ reason }) => refused.push(reason),
    handler: (request, response): RequestSink => {
      const one: Seen = { request, body: '', trailers: undefined, aborted: false }
      seen.push(one)
      const answer = () => {
        response.responseHead({ status: request.upgrade ? 101 : 200, headers: [], bodyBytes: -1 })
        response.responseData(Buffer.from('ok'))
        response.responseEnd([])
      }
      if (atOnce) answer()
      return {
        requestData: chunk => {
          holds(chunk.length > 0 && one.trailers === undefined && !one.aborted, 'data comes before the end')
          one.body += Buffer.from(chunk).toString('latin1')
          response.requestConsumed(chunk.length)
        },
        requestEnd: trailers => {
          holds(one.trailers === undefined && !one.aborted, 'one end')
          one.trailers = trailers
          if (!atOnce) answer()
        },
        requestAbort: error => {
          holds(!one.aborted && error.reason !== 'internal', 'one abort, for a reason of the table')
          one.aborted = true
        },
        responseConsumed: () => {},
      }
    },
  })
  await socket.bring(pieces)
  await turn()
  const sent = framesOf(Buffer.concat(socket.sent))
  connection.destroy('shutting-down')
  await turn()
  same([connections.size, connections.unread.usedBytes], [0, 0], 'nothing is left')
  for (const { request, trailers, body } of seen) {
    canonicalRequestHeaders(request.headers)
    canonicalHeaders([...(trailers ?? [])])
    if (trailers !== undefined && request.bodyBytes >= 0 && !request.upgrade)
      same(body.length, request.bodyBytes, 'its length')
  }
  const requests = seen.map(({ request, body, trailers, aborted }) => {
    // How much of a broken body is seen before the fault depends on the cut.
    return [request.method, request.headers, request.bodyBytes, trailers && body, trailers, aborted]
  })
  const said = sent
    .filter(({ type }) => type !== TYPE.window)
    .map(({ type, flags, stream, payload }) => {
      return [type, flags, stream, type === TYPE.headers ? '' : withoutIds(payload)]
    })
  holds(
    sent.every(({ type, payload }) => type !== TYPE.goaway || payload.readUInt32BE(4) !== 2),
    'no fault of ours',
  )
  return { requests, refused, said }
}

/** Answers of our own contain the id of their request. */
function withoutIds(payload: Buffer): string {
  return payload.toString('latin1').replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, '')
}

/** The first byte decides whether requests are answered at once. */
export const http2Edge: FuzzTarget = {
  name: 'http2-edge',

  generate(random) {
    const frames = anyFrames(random)
    return Buffer.concat([random.bytes(1), random.oneIn(3) ? mutate(frames, random) : frames])
  },

  async execute(input) {
    const atOnce = ((input[0] ?? 0) & 1) === 1
    const whole = await serve([input.subarray(1)], atOnce)
    const pieces = await serve(cut(input.subarray(1), new Random(input)), atOnce)
    same(pieces, whole, 'any cut is read alike')
  },
}
