import type { Logger } from '../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type RequestSink, type ResponseSink } from '../../../protocol/exchange.ts'
import { getHeader, isAuthority, isPath, isToken } from '../../../protocol/http/headers.ts'
import { acceptExchange } from '../../../protocol/wire/exchange/accept.ts'
import { openExchange } from '../../../protocol/wire/exchange/open.ts'
import type { RefusalCode } from '../../../protocol/wire/exchange/refusal.ts'
import { memoryPair } from '../../../protocol/wire/transport-memory.ts'
import { Flag, FrameType } from '../../../protocol/wire/yamux/frame.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { openOptions, request } from '../../protocol/wire/exchange/support.ts'
import { FakeClock, frame, RawPeer, turns } from '../../protocol/wire/yamux/support.ts'
import { canonicalHeaders, holds, same } from '../holds.ts'
import { cut, mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'
import { anyMessage } from './bhttp.ts'
import { preambleBytes } from './preamble.ts'

/** One end of an exchange, which records its events in order. */
class Told {
  readonly said: [string, ...unknown[]][] = []
  #over = false

  say(what: string, ...about: unknown[]): void {
    holds(!this.#over, `nothing is said behind the end: ${what}`)
    this.#over = what === 'end' || what === 'abort'
    this.said.push([what, ...about])
  }

  data(chunk: Uint8Array): void {
    const last = this.said.at(-1)
    const text = Buffer.from(chunk).toString('latin1')
    if (last?.[0] === 'data') last[1] = `${last[1]}${text}`
    else this.say('data', text)
  }

  /** Without what depends on timing: the part of a body that arrived before a fault. */
  get outcome(): unknown {
    const broken = this.said.some(([what]) => what === 'abort')
    return broken ? this.said.filter(([what]) => what !== 'data') : this.said
  }
}

type Side = 'accept' | 'open' | 'open an upgrade'

/** Runs a session whose peer sends `pieces` on one stream and then FIN. Returns what the exchange on it reported. */
async function play(side: Side, pieces: readonly Buffer[]): Promise<unknown> {
  const [ours, theirs] = memoryPair()
  const peer = new RawPeer(theirs)
  const told = new Told()
  const faults: unknown[] = []
  const logger: Logger = { debug: ignore, info: ignore, warn: ignore, error: (...said) => void faults.push(said) }
  const clock = new FakeClock()
  const session = createSession(ours, {
    role: side === 'accept' ? 'client' : 'server',
    clock,
    logger,
    onStream: stream => acceptExchange(stream, handler(told), logger),
  })
  if (side !== 'accept') {
    const response = downstream(told, bytes => sink.responseConsumed(bytes))
    const sink = openExchange(session.open(), asked(side), openOptions, response)
    sink.requestEnd([])
  }
  await turns(2)
  let flags: number = side === 'accept' ? Flag.syn : Flag.ack
  for (const piece of pieces) {
    peer.send(frame(FrameType.data, flags, 2, piece))
    flags = 0
    await turns(1)
  }
  peer.send(frame(FrameType.data, flags | Flag.fin, 2, Buffer.alloc(0)))
  await turns(4)
  same(faults, [], 'no error of ours')
  holds(!session.closed, 'the session outlives its streams')
  holds(session.bufferedBytes === 0, 'what was consumed is given back')
  session.close('done')
  await turns(2)
  return told.outcome
}

function asked(side: Side) {
  return request({ upgrade: side === 'open an upgrade', headers: [] })
}

function handler(told: Told) {
  return (
    _preamble: unknown,
    received: ReturnType<typeof request>,
    response: ResponseSink,
  ): RequestSink | RefusalCode => {
    holds(isToken(received.method) && received.method !== 'CONNECT', 'a method')
    holds(isPath(received.path) && isAuthority(received.authority), 'path and authority')
    canonicalHeaders(received.headers)
    const length = getHeader(received.headers, 'content-length')
    holds(length === undefined || Number(length) === received.bodyBytes, 'one length of the body')
    told.say('request', received.method, received.authority, received.path, received.headers, received.bodyBytes)
    if (received.method === 'FOO') return 'overloaded'
    if (received.upgrade) response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    return {
      requestData: chunk => {
        told.data(chunk)
        response.requestConsumed(chunk.length)
      },
      requestEnd: trailers => {
        told.say('end', trailers)
        // The head counts until the exchange is over.
        if (!received.upgrade) response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
        response.responseEnd([])
      },
      requestAbort: error => {
        holds(error.reason !== 'internal', 'an error of the table')
        told.say('abort')
      },
      responseConsumed: ignore,
    }
  }
}

function downstream(told: Told, consumed: (bytes: number) => void): ResponseSink {
  return {
    responseInformational: (status, headers) => told.say('informational', status, headers),
    responseHead: head => {
      holds(head.bodyBytes >= BODY_UNKNOWN, 'a length')
      told.say('head', head.status, head.headers, head.bodyBytes)
    },
    responseData: chunk => {
      told.data(chunk)
      consumed(chunk.length)
    },
    responseEnd: trailers => told.say('end', trailers),
    responseAbort: () => told.say('abort'),
    requestConsumed: ignore,
  }
}

const SIDES: readonly Side[] = ['accept', 'accept', 'open', 'open an upgrade']

/** The first byte selects our end. The rest is sent on the stream. */
export const exchange: FuzzTarget = {
  name: 'exchange',

  generate(random) {
    const mode = random.bytes(1)
    const accepts = SIDES[mode[0]! & 3] === 'accept'
    const first = accepts ? preambleBytes(random) : Buffer.from([random.pick([1, 1, 1, 2])])
    const message = Buffer.from(anyMessage(random, accepts ? 'request' : 'response'), 'latin1')
    const bytes = Buffer.concat([first, message])
    return Buffer.concat([mode, random.oneIn(2) ? bytes : mutate(bytes, random)])
  },

  async execute(input) {
    const side = SIDES[(input[0] ?? 0) & 3]!
    const bytes = input.subarray(1)
    const whole = await play(side, bytes.length === 0 ? [] : [bytes])
    same(await play(side, cut(bytes, new Random(input))), whole, 'any cut is read alike')
  },
}

function ignore(): void {}
