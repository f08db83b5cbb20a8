/**
 * security.md, B1 and H6 at the edge over HTTP/2: an answer that arrives before the end of its request counts until it has
 * left, and its caller can send its body to the end, or for a while, before its stream is reset.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { ConnectionSet } from '../../protocol/http/connection-set.ts'
import type { HttpLimits } from '../../protocol/http/limits.ts'
import { ok, type RawPeer, recorder } from '../protocol/http/http1/raw.ts'
import {
  ACK,
  data,
  END_HEADERS,
  END_STREAM,
  ERRORS,
  ended,
  type Frame,
  field,
  frame,
  framesOf,
  goaway,
  head,
  headers,
  PREFACE,
  reset,
  settings,
  TYPE,
} from '../support/http2-frames.ts'
import { callHttp2 } from '../support/http2-session.ts'
import { needs } from '../support/needs.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'
import { HOST, startEdge, stopEdges } from './edge.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
  await stopEdges()
})

const STREAMS = 40
const ANSWER_BYTES = 60_000
const window = (bytes: number) => {
  const setting = Buffer.from([0, 4, 0, 0, 0, 0])
  setting.writeUInt32BE(bytes, 2)
  return frame(TYPE.settings, 0, 0, setting)
}

test.each([
  ['B1: whose end is to come', 0],
  ['B1: that are whole', END_STREAM],
] as const)('answers to requests: %s', async (_name, flags) => {
  const edge = await startEdge(peer => {
    const body = `HTTP/1.1 200 OK\r\nContent-Length: ${ANSWER_BYTES}\r\nConnection: close\r\n\r\n${'x'.repeat(ANSWER_BYTES)}`
    peer.socket.once('data', () => peer.socket.end(body))
  })
  const peer = await edge.call()
  const pseudo = [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', HOST]
  const block = Buffer.concat(pseudo.flatMap((name, i) => (i % 2 === 0 ? [field(name, pseudo[i + 1]!)] : [])))
  peer.send(Buffer.concat([PREFACE, window(0), frame(TYPE.settings, 1, 0)]))
  for (let n = 0; n < STREAMS; n++) peer.send(frame(TYPE.headers, END_HEADERS | flags, 2 * n + 1, block))
  const frames = () => framesOf(Buffer.from(peer.text, 'latin1'))
  const heads = () => frames().filter(({ type }) => type === TYPE.headers).length
  const stats = () => edge.server.stats()
  await eventually(() => expect([heads(), stats().exchanges]).toEqual([STREAMS, 0]))
  // They wait for their caller's window, at the edge or behind it.
  expect(stats().bufferedBytes).toBeGreaterThan(0.9 * STREAMS * ANSWER_BYTES)
  peer.send(Buffer.concat([window(100_000), frame(TYPE.window, 0, 0, Buffer.from([0x10, 0, 0, 0]))]))
  const ended = () => frames().filter(({ type, flags }) => type === TYPE.data && flags & END_STREAM).length
  await eventually(() => expect(ended()).toBe(STREAMS))
  await eventually(() => expect(stats()).toMatchObject({ bufferedBytes: 0, streams: 0 }))
  await edge.othersUnhurt()
})

/** Answers each request once its head has arrived. */
async function startEarly(limits?: Partial<HttpLimits>) {
  const { handler, seen } = recorder(({ response }) => ok(response, 'early'))
  const connections = new ConnectionSet(10)
  const peer = await callHttp2({ handler, connections, limits }, open)
  peer.send(Buffer.concat([PREFACE, settings(), frame(TYPE.settings, ACK, 0)]))
  return { peer, seen, connections, said: () => saidTo(peer) }
}

const post = (id: number) => headers(id, head('POST'), END_HEADERS)

/** What a caller was sent of streams, windows and pings, in short. */
function saidTo(peer: RawPeer): string[] {
  const names: Partial<Record<number, (one: Frame) => string>> = {
    [TYPE.data]: ({ flags, stream }) => `${flags & END_STREAM ? 'end' : 'data'} ${stream}`,
    [TYPE.reset]: ({ stream, payload }) => `reset ${stream} ${ERRORS[payload.readUInt32BE()]}`,
    [TYPE.ping]: () => 'ping',
    [TYPE.window]: ({ stream }) => `window ${stream}`,
    [TYPE.goaway]: () => 'goaway',
  }
  return framesOf(Buffer.from(peer.text, 'latin1'))
    .map(one => names[one.type]?.(one) ?? '')
    .filter(name => name !== '')
    .slice(1)
}

/** Sends a body as far as the windows of its stream allow. */
async function upload(peer: RawPeer, id: number, bytes: number): Promise<void> {
  const piece = Buffer.alloc(16_000)
  const granted = () => {
    const updates = framesOf(Buffer.from(peer.text, 'latin1')).filter(
      one => one.type === TYPE.window && one.stream === id,
    )
    return updates.reduce((sum, { payload }) => sum + payload.readUInt32BE(), 65_535)
  }
  for (let sent = 0; sent < bytes; sent += piece.length) {
    await peer.until(() => granted() >= sent + piece.length)
    peer.send(data(id, piece))
  }
}

describe('H6: behind an early answer', () => {
  test('H6, B1: a caller that reads it only behind its body can send that, which is discarded and costs nothing', async () => {
    const { peer, seen, connections, said } = await startEarly()
    const ids = [1, 3, 5, 7, 9]
    const ends = ids.map(id => `end ${id}`)
    peer.send(Buffer.concat(ids.map(post)))
    await eventually(() => expect(said()).toEqual(ends))
    // The upstream's end is over with the answer.
    expect(seen.map(({ aborted }) => aborted)).toEqual(ids.map(() => 'cancelled'))
    await Promise.all(ids.map(id => upload(peer, id, 320_000)))
    expect(connections.unread.usedBytes).toBeLessThan(ids.length * 8192)
    peer.send(Buffer.concat(ids.map(id => ended(id))))
    await eventually(() => expect(connections.unread.usedBytes).toBe(0))
    expect(said().filter(one => !one.startsWith('window'))).toEqual(ends)
    expect(seen.map(({ body }) => body)).toEqual(ids.map(() => ''))
  })

  test.each([
    ['a byte each drainMs', { drainMs: 1000 }, 4000],
    ['lingerMs in all', { lingerMs: 1000 }, 0],
  ])('H6: a caller that goes on sending has %s', async (_, limits, leastMs) => {
    const { peer, connections, said } = await startEarly(limits)
    peer.send(post(1))
    const begun = performance.now()
    const timer = setInterval(() => {
      if (leastMs === 0 || performance.now() - begun < leastMs) peer.send(data(1, 'x'))
    }, 100)
    open.push(() => clearInterval(timer))
    await eventually(() => expect(said()).toContain('reset 1 NO_ERROR'))
    expect(performance.now() - begun).toBeGreaterThan(leastMs)
    expect([said(), connections.unread.usedBytes]).toEqual([['end 1', 'reset 1 NO_ERROR'], 0])
  })

  test.each([
    ['its caller ends it', ended(1)],
    ['its caller ends it with nothing', ended(1, '')],
    ['its caller ends it with trailers', headers(1, [['x', 'y']])],
    ['its caller resets it', reset(1)],
  ])('H6: %s: its stream is over, and is not reset', async (_, last) => {
    const { peer, seen, connections, said } = await startEarly()
    peer.send(post(1))
    await eventually(() => expect(said()).toEqual(['end 1']))
    peer.send(last)
    await eventually(() => expect(connections.unread.usedBytes).toBe(0))
    peer.send(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))
    await eventually(() => expect(said()).toEqual(['end 1', 'ping']))
    expect(seen.map(({ aborted }) => aborted)).toEqual(['cancelled'])
  })

  test('H6: while the answer waits for its caller, what that ends is not the end of the request for the upstream', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response, 'early'))
    const peer = await callHttp2({ handler, connections: new ConnectionSet(10) }, open)
    peer.send(Buffer.concat([PREFACE, window(0), frame(TYPE.settings, ACK, 0), post(1)]))
    peer.send(headers(3, head('POST', ['content-length', '3']), END_HEADERS))
    await eventually(() => expect(seen).toHaveLength(2))
    peer.send(Buffer.concat([data(1), ended(1), ended(3, 'xyz'), frame(TYPE.ping, 0, 0, Buffer.alloc(8))]))
    await eventually(() => expect(saidTo(peer)).toEqual(['ping']))
    expect(seen.map(({ body, trailers }) => body + trailers)).toEqual(['undefined', 'undefined'])
    peer.send(window(100))
    await eventually(() => expect(saidTo(peer)).toEqual(['ping', 'end 1', 'end 3']))
  })

  test('H6: a caller that sends nothing has drainMs, and 100 streams', async () => {
    const { peer, connections, said } = await startEarly({ drainMs: 1000 })
    const ids = Array.from({ length: 101 }, (_, n) => 2 * n + 1)
    peer.send(Buffer.concat(ids.map(post)))
    const resets = (code: string) => said().filter(one => one.startsWith('reset') && one.endsWith(code)).length
    await eventually(() => expect([resets('REFUSED_STREAM'), said()].flat()).toContain('end 199'))
    expect([resets('REFUSED_STREAM'), resets('NO_ERROR')]).toEqual([1, 0])
    await eventually(() => expect(resets('NO_ERROR')).toBe(100))
    expect(connections.unread.usedBytes).toBe(0)
  })

  test.each([
    ['its listener stops', undefined],
    ['its caller goes away', goaway(0)],
  ])('H6: %s: the connection ends behind the reset', async (_, bye) => {
    const { peer, connections, said } = await startEarly({ drainMs: 1000 })
    peer.send(post(1))
    await eventually(() => expect(said()).toEqual(['end 1']))
    const stopped = bye === undefined ? connections.close(10_000, false, async () => {}) : peer.send(bye)
    await eventually(() => expect(said()).toContain('goaway'))
    expect(said()).not.toContain('reset 1 NO_ERROR')
    await peer.end()
    expect(said()).toContain('reset 1 NO_ERROR')
    await stopped
    peer.socket.destroy()
    await eventually(() => expect([connections.size, connections.unread.usedBytes]).toEqual([0, 0]))
  })
})

/** curl 7.88 lost most answers whose stream was reset in the same read. */
test.runIf(needs('curl'))('H6: curl reads early answers to uploads of any size', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'early-'))
  open.push(() => rmSync(folder, { recursive: true }))
  const refusal = 'HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno'
  const edge = await startEdge(peer => peer.socket.once('data', () => peer.socket.end(refusal)), {}, true)
  const ask = (host: string, body: string) =>
    new Promise(resolve => {
      const to = ['--connect-to', `::127.0.0.1:${edge.port}`, `https://${host}:${edge.port}/`]
      const how = ['-sk', '--http2', '-m', '60', '-H', 'Expect:', '--data-binary', `@${body}`]
      const what = ['-o', '/dev/null', '-w', '%{http_version} %{http_code} ']
      execFile('curl', [...how, ...what, ...to], (error, out) => resolve(`${out}${error?.code ?? 0}`))
    })
  for (const size of [66_000, 100_000, 3_000_000]) {
    const body = join(folder, String(size))
    writeFileSync(body, Buffer.alloc(size))
    for (let n = 0; n < 3; n++) {
      const answers = [await ask(HOST, body), await ask(`nobody.${DOMAIN}`, body)]
      expect([size, ...answers]).toEqual([size, '2 401 0', '2 503 0'])
    }
  }
  await eventually(() => expect(edge.server.stats()).toMatchObject({ bufferedBytes: 0, streams: 0, exchanges: 0 }))
  await edge.othersUnhurt()
})
