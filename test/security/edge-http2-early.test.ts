/**
 * security.md, B1 at the edge over HTTP/2: an answer that arrives before the end of its request counts until it has
 * left.
 */
import { afterEach, expect, test } from 'vitest'
import { END_HEADERS, END_STREAM, field, frame, framesOf, PREFACE, TYPE } from '../support/http2-frames.ts'
import { eventually } from '../support/until.ts'
import { HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

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
