/** Sends inputs through lanes, and compares the edge's reading with each upstream's. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import { anyRequests } from '../fuzz/http1-grammar.ts'
import { cut } from '../fuzz/mutate.ts'
import { Random } from '../fuzz/random.ts'
import { http2Head, readHttp2Head } from '../fuzz/targets/http2-head.ts'
import { asReport, Lane, type Passed } from './lane.ts'
import type { Upstream } from './programs.ts'

/** The outcome of all inputs at one upstream. */
export interface Tally {
  /** Requests that the edge accepted, and that arrived whole. */
  accepted: number
  /** ... of these, those that the upstream refused, by status. 0: it closed the connection. */
  refused: Record<string, number>
  /** Canaries that used the connection of the request before them. */
  sameConnection: number
  disagreements: string[]
}

export interface Options {
  readonly seed: string
  readonly inputs: number
  /** Inputs in progress at once. */
  readonly workers: number
}

export async function compareHttp1(upstream: Upstream, options: Options): Promise<Tally> {
  return eachInput(upstream, options, 'http1', (lane, random) => {
    const bytes = anyRequests(random)
    return { input: bytes, passed: lane.connection(random.oneIn(2) ? [bytes] : cut(bytes, random)) }
  })
}

/** Heads as HTTP/2 carries them, with a body of the announced length. */
export async function compareHttp2(upstream: Upstream, options: Options): Promise<Tally> {
  return eachInput(upstream, options, 'http2', (lane, random) => {
    const input = http2Head.generate(random)
    const request = readHttp2Head(input)
    if (request === undefined || request.bodyBytes > 1000) return { input, passed: Promise.resolve([]) }
    const body = random.bytes(request.bodyBytes < 0 ? random.size(200) : request.bodyBytes)
    return { input, passed: lane.exchange(request, body).then(one => [one]) }
  })
}

type Send = (lane: Lane, random: Random) => { input: Buffer; passed: Promise<Passed[]> }

async function eachInput(upstream: Upstream, options: Options, kind: string, send: Send): Promise<Tally> {
  const tally: Tally = { accepted: 0, refused: {}, sameConnection: 0, disagreements: [] }
  let next = 0
  const work = async () => {
    const lane = new Lane(upstream)
    while (next < options.inputs && tally.disagreements.length < 10) {
      const n = next++
      const { input, passed } = send(lane, new Random(`${options.seed}/${kind}/${n}`))
      const about = `${upstream.name}, ${kind} input ${n}: ${input.toString('hex')}`
      let last: string | undefined
      for (const one of await passed) {
        last = one.connection
        if (one.whole && !one.request.upgrade) count(tally, upstream, one, about)
      }
      const answer = await lane.exchange(canary(n), Buffer.alloc(0))
      if (answer.connection !== undefined && answer.connection === last) tally.sameConnection++
      expectReport(tally, upstream, answer, `canary behind ${about}`)
    }
    lane.close()
  }
  await Promise.all(Array.from({ length: options.workers }, work))
  return tally
}

function count(tally: Tally, upstream: Upstream, one: Passed, about: string): void {
  tally.accepted++
  if (one.report === undefined && one.status !== 200) {
    tally.refused[one.status] = (tally.refused[one.status] ?? 0) + 1
    return
  }
  expectReport(tally, upstream, one, about)
}

function expectReport(tally: Tally, upstream: Upstream, one: Passed, about: string): void {
  const [ours, theirs] = [JSON.stringify(asReport(one, upstream.reads)), JSON.stringify(one.report)]
  if (ours !== theirs) tally.disagreements.push(`edge ${ours}, upstream ${theirs} (status ${one.status}): ${about}`)
}

function canary(n: number): HttpRequest {
  return {
    method: 'GET',
    authority: 'canary.test',
    path: `/canary/${n}`,
    headers: [],
    bodyBytes: 0,
    upgrade: false,
    peerAddress: '192.0.2.1',
    encrypted: false,
    caller: undefined,
    requestId: '',
    exchangeId: undefined,
  }
}
