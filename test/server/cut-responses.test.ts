/** Who ended a response: server and client agree on it, whatever there is between the caller and the service. */
import { once } from 'node:events'
import { createConnection } from 'node:net'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { RawPeer, RawUpstream } from '../protocol/http/http1/raw.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

let secrets: Secrets
beforeAll(async () => {
  secrets = await makeSecrets()
})

interface Stage {
  readonly pair: Pair
  readonly caller: RawPeer
  readonly upstream: RawUpstream
  /** What server and client recorded. */
  readonly seen: () => readonly (readonly [code: string | undefined, cut: boolean])[]
}

const EVENTS = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n'

/** A caller that has got the beginning of an answer from the service of a client. */
async function begin(request: string, answer = EVENTS): Promise<Stage> {
  const upstream = await RawUpstream.start(peer => peer.socket.once('data', () => peer.send(answer)))
  const [atServer, atClient]: ExchangeRecord[][] = [[], []]
  const pair = await startPair({
    target: `http://127.0.0.1:${upstream.port}`,
    secrets,
    server: {
      public: { port: 0, limits: { stalledMs: 300, halfCloseMs: 100 } },
      onExchange: one => void atServer!.push(one),
    },
    client: { connections: 1, onExchange: one => void atClient!.push(one) },
  })
  const socket = createConnection({ port: pair.server.publicAddress!.port, host: '127.0.0.1' })
  open.push(
    () => upstream.close(),
    () => pair.stop(),
    () => socket.destroy(),
  )
  const caller = new RawPeer(socket)
  await once(socket, 'connect')
  caller.send(request)
  await caller.saying('data: 1')
  const seen = () => [...atServer!, ...atClient!].map(({ code, cut }) => [code, cut] as const)
  return { pair, caller, upstream, seen }
}

const head = (method: string, fields = '') => `${method} / HTTP/1.1\r\nHost: demo.${DOMAIN}\r\n${fields}\r\n`
const GET = head('GET')
const POST = head('POST', 'Transfer-Encoding: chunked\r\n')
const MUCH = EVENTS + 'x'.repeat(32 * 1024 * 1024)

type Act = (stage: Stage) => unknown
type Row = readonly [what: string, act: Act, code: string, request: string, answer: string]

describe('server and client agree', () => {
  test.each<Row>([
    ['the server stops', ({ pair }) => pair.server.close({ graceMs: 200 }), 'session-lost', GET, EVENTS],
    ['the caller takes nothing', ({ caller }) => caller.socket.pause(), 'request-timeout', GET, MUCH],
    ["the caller's body is malformed", ({ caller }) => caller.send('zz\r\n'), 'bad-request', POST, EVENTS],
    [
      'the service breaks off',
      ({ upstream }) => upstream.peers[0]!.socket.resetAndDestroy(),
      'upstream-broken',
      GET,
      EVENTS,
    ],
  ])('on a cut: %s', async (_what, act, code, request, answer) => {
    const stage = await begin(request, answer)
    await act(stage)
    await eventually(() =>
      expect(stage.seen()).toEqual([
        [code, true],
        [code, true],
      ]),
    )
  })

  test.each([
    ['with FIN', (caller: RawPeer) => caller.socket.end(), GET],
    ['with RST', (caller: RawPeer) => caller.socket.resetAndDestroy(), GET],
    ['in its body', (caller: RawPeer) => caller.socket.resetAndDestroy(), POST],
  ] as const)('on a caller that leaves: %s', async (_what, leave, request) => {
    const stage = await begin(request)
    leave(stage.caller)
    await eventually(() =>
      expect(stage.seen()).toEqual([
        ['cancelled', false],
        ['cancelled', false],
      ]),
    )
  })
})
