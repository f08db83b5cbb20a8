// @module-tag slow
/** security.md, "One caller, one connection": callers that leave, at the real edge. */
import { afterEach, describe, expect, test } from 'vitest'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'
import type { RawPeer } from '../protocol/http/http1/raw.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'
import { type Edge, HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

const get = (fields = '', host = HOST) => `GET /x HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n`
const post = (bytes: number) => `POST /x HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: ${bytes}\r\n\r\n`
const UPGRADE = get(
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n',
)
/** More than all the buffers on the way hold. */
const MUCH = 'x'.repeat(16 * 1024 * 1024)
/** More than one end reads ahead, so reading is paused there. */
const SOME = 'x'.repeat(300_000)

const QUIET = (peer: RawPeer) => peer.socket.on('error', () => {})

function saying(text: (request: string) => string): (peer: RawPeer) => void {
  return peer => {
    QUIET(peer)
    peer.socket.once('data', () => peer.send(text(peer.text)))
  }
}

const accepting = saying(request => {
  const accept = webSocketAccept(/^sec-websocket-key: (.*)\r$/m.exec(request)![1]!)
  return `HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`
})
const streaming = saying(() => 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent')

interface Row {
  readonly state: string
  readonly upstream?: (peer: RawPeer) => void
  readonly sends: string
  readonly hears?: string
  /** A FIN is noticed in this state. */
  readonly fin: boolean
}

const ROWS: Row[] = [
  { state: 'before the head of the answer', sends: get(), fin: true },
  { state: 'before the head, reading paused', sends: get() + SOME, fin: true },
  { state: 'in a body', sends: `${post(1e9)}begun`, fin: true },
  { state: 'in a body that nobody takes', upstream: takingOne, sends: post(1e9) + MUCH, fin: true },
  { state: 'in a quiet answer', upstream: streaming, sends: get(), hears: 'event', fin: true },
  { state: 'in a quiet answer, reading paused', upstream: streaming, sends: get() + SOME, hears: 'event', fin: false },
  { state: 'before a 101', sends: UPGRADE, fin: true },
  { state: 'before a 101, reading paused', sends: UPGRADE + SOME, fin: true },
  { state: 'upgraded', upstream: accepting, sends: UPGRADE, hears: '101', fin: false },
  { state: 'upgraded, and nobody takes', upstream: stopping, sends: UPGRADE + MUCH, hears: '101', fin: false },
]

/** Those in which it is noticed. Over TLS, a reader that is paused is another one. */
function rows(isReset: boolean): (Row & { readonly over: string })[] {
  const noticed = ROWS.filter(({ fin }) => fin || isReset)
  const paused = noticed.filter(({ sends }) => sends.length > SOME.length)
  return [...noticed.map(row => ({ ...row, over: 'TCP' })), ...paused.map(row => ({ ...row, over: 'TLS' }))]
}

/** Reads once. */
function takingOne(peer: RawPeer): void {
  QUIET(peer)
  peer.socket.once('data', () => peer.socket.pause())
}

function stopping(peer: RawPeer): void {
  accepting(peer)
  peer.socket.once('data', () => setImmediate(() => peer.socket.pause()))
}

describe.each([
  ['a reset', (caller: RawPeer) => resetSocket(caller.socket)],
  ['a FIN', (caller: RawPeer) => caller.socket.destroy()],
] as const)('E16: %s', (how, leave) => {
  test.each(rows(how === 'a reset'))('E16: $state, over $over', async row => {
    const records: ExchangeRecord[] = []
    const options = { onExchange: (record: ExchangeRecord) => void records.push(record) }
    const edge = await startEdge(row.upstream ?? QUIET, options, row.over === 'TLS')
    const caller = await edge.call()
    caller.send(row.sends)
    if (row.hears !== undefined) await caller.saying(row.hears)
    await atUpstream(edge)
    leave(caller)
    await eventually(() => expect(records).toMatchObject([{ code: 'cancelled', cut: false }]))
    // The other end has heard of it, too.
    edge.upstream.peers[0]!.socket.resume()
    const peer = edge.upstream.peers[0]!
    await eventually(() => expect(peer.ended || peer.closed).toBe(true))
    await edge.othersUnhurt()
  })

  test('E16: held for a runtime that is offline', async () => {
    const records: ExchangeRecord[] = []
    const edge = await startEdge(undefined, { onExchange: record => records.push(record), hold: { holdMs: 60_000 } })
    const caller = await edge.call()
    caller.send(get('', `away.${DOMAIN}`))
    // A request behind it on another connection is answered, so the one before it is in the queue.
    await edge.othersUnhurt()
    leave(caller)
    await eventually(() => expect(records.some(({ code }) => code === 'cancelled')).toBe(true))
  })
})

async function atUpstream(edge: Edge): Promise<void> {
  await eventually(() => expect(edge.upstream.peers).toHaveLength(1))
  await edge.upstream.peers[0]!.saying('\r\n\r\n')
  await new Promise(resolve => setTimeout(resolve, 200))
}
