/** What an HTTP/2 upstream sends at the worst moment ends no router, which runs in a separate process. */
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { Part } from '../../../cli/demo/parts.ts'
import { END_HEADERS, field, frame, framesOf, PREFACE, setting, TYPE, uint32 } from '../../support/http2-frames.ts'
import { get } from '../support.ts'

const COMMAND = resolve(import.meta.dirname, '../../../bin/sallyport.js')
/** What is read at once. The rest is another read in the same turn. */
const READ_BYTES = 64 * 1024
const WINDOW_BYTES = 65_535
const ROUNDS = 8
const ACK = 1
const UNKNOWN_TYPE = 99
const SMALL = 'small'
const BIG = 'big'

let folder: string
let servers: Server[]
let router: Part
let port: number
let round: number
let onStream: (socket: Socket, id: number) => void
let sockets: Socket[]
beforeEach(async () => {
  sockets = []
  servers = Array.from({ length: ROUNDS }, () => createServer(serve).listen(0, '127.0.0.1'))
  await Promise.all(servers.map(server => once(server, 'listening')))
  folder = await mkdtemp(join(tmpdir(), 'sallyport-hostile-'))
  const answer = { name: 'here', match: { path: '/here' }, answer: { body: 'still here' } }
  // After a fault, exchanges with the same target would share no session.
  const ups = servers.map((server, round) => {
    const target = `h2c://127.0.0.1:${(server.address() as AddressInfo).port}`
    return { name: `up${round}`, match: { path: `/${round}` }, target }
  })
  const routes = { routes: [answer, ...ups] }
  await writeFile(join(folder, 'routes.yaml'), JSON.stringify(routes))
  const flags = ['--admin.listen', 'off', '--listen', '127.0.0.1:0', '--routes', join(folder, 'routes.yaml')]
  router = new Part('router', process.execPath, [COMMAND, 'router', ...flags], process.env)
  port = Number((await router.listening('router')).split(':').at(-1))
})
afterEach(async () => {
  await router.stop()
  for (const socket of sockets) socket.destroy()
  for (const server of servers) server.close()
  await rm(folder, { recursive: true })
})

/**
 * Accepts streams, and calls `onStream` for the second of each connection, once the router has answered a ping sent
 * after it.
 */
function serve(socket: Socket): void {
  sockets.push(socket)
  socket.on('error', () => {})
  // The streams have room for all of their bodies, and the connection has none for the second.
  const wide = setting('initialWindowSize', 2 ** 20)
  socket.write(frame(TYPE.settings, 0, 0, wide))
  let bytes = Buffer.alloc(0)
  let taken = PREFACE.length
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    for (const { type, flags, stream, payload } of framesOf(bytes.subarray(taken))) {
      taken += 9 + payload.length
      if (type === TYPE.settings && flags !== ACK) socket.write(frame(TYPE.settings, ACK, 0))
      if (type === TYPE.headers && stream === 1) void post(SMALL, 10).then(status => socket.emit('answered', status))
      if (type === TYPE.headers && stream === 3) socket.write(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))
      if (type === TYPE.ping && flags === ACK) onStream(socket, 3)
    }
  })
}

/** Status of the answer; undefined if there was none. */
function post(path: string, bytes: number): Promise<number | undefined> {
  return new Promise(done => {
    const call = request({ port, host: '127.0.0.1', path: `/${round}/${path}`, method: 'POST', agent: false })
    call.on('response', answer => {
      answer.on('error', () => {})
      answer.resume()
      done(answer.statusCode)
    })
    call.on('error', () => done(undefined))
    call.setHeader('content-length', bytes)
    call.end(Buffer.alloc(bytes))
  })
}

const informational = (id: number) => frame(TYPE.headers, END_HEADERS, id, field(':status', '103'))
const head = (id: number, ...more: Buffer[]) =>
  frame(TYPE.headers, END_HEADERS, id, Buffer.concat([field(':status', '200'), ...more]))

/** Each makes the router give up the stream while the frame is being read. */
const FAULTS: Record<string, (id: number) => Buffer[]> = {
  'too many informational answers': id => Array.from({ length: 40 }, () => informational(id)),
  'a body longer than announced': id => [
    head(id, field('content-length', '1')),
    frame(TYPE.data, 0, id, Buffer.alloc(2)),
  ],
  'a go-away with an error': () => [frame(TYPE.goaway, 0, 0, Buffer.concat([uint32(3), uint32(2)]))],
  'a frame that ends the connection': () => [frame(TYPE.headers, END_HEADERS, 0)],
}

it.each(Object.entries(FAULTS))('%s, as the last of a request leaves: the router goes on', async (_, fault) => {
  for (round = 0; round < ROUNDS; round++) {
    const answered = new Promise<number>(done => {
      onStream = (socket, id) => {
        socket.once('answered', done)
        const room = frame(TYPE.window, 0, 0, uint32(2 ** 20))
        socket.write(Buffer.concat([room, ...padding(READ_BYTES - room.length), ...fault(id)]))
      }
    })
    const big = post(BIG, 2 * WINDOW_BYTES)
    expect(await Promise.race([answered, router.gone])).toBeOneOf([502, 200])
    for (const socket of sockets.splice(0)) socket.destroy()
    await big
    expect(await get(port, '/here')).toMatch(/still here$/)
  }
})

/** Frames that nobody knows, and everybody must skip (RFC 9113, section 5.5). */
function padding(bytes: number): Buffer[] {
  const frames: Buffer[] = []
  for (let left = bytes; left > 0; left -= frames.at(-1)!.length) {
    frames.push(frame(UNKNOWN_TYPE, 0, 0, Buffer.alloc(Math.min(left, 16_384) - 9)))
  }
  return frames
}
