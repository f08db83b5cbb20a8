/** After any mix of answers, faults and callers that leave, nothing is left: no exchange, no connection. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { serveRouter } from '../../router/index.ts'
import { OK, RawUpstream } from './support.ts'

/** A small generator, so that a failure can be repeated. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296
    return state / 4_294_967_296
  }
}

it('600 exchanges, a third of which break off', async () => {
  const next = random(20_260_401)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)]!
  const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n'
  const up = await RawUpstream.start((socket, text) => {
    if (!text.endsWith('\r\n\r\n')) return
    const kind = pick(['ok', 'ok', 'ok', 'close', 'cut', 'reset', 'garbage', 'half', 'silent'])
    if (kind === 'ok') socket.write(OK)
    if (kind === 'close') socket.end(OK.replace('content', 'connection: close\r\ncontent'))
    if (kind === 'cut') socket.write(CHUNKED, () => socket.resetAndDestroy())
    if (kind === 'reset') socket.resetAndDestroy()
    if (kind === 'garbage') socket.write('garbage\r\n\r\n')
    if (kind === 'half') socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc')
  })
  let recorded = 0
  const service = await serveRouter({
    port: 0,
    routes: {
      routes: [
        { name: 'up', match: {}, target: up.url, timeouts: { headMs: 60 }, retries: { attempts: 1 } },
        { name: 'down', match: { path: '/down' }, target: 'http://127.0.0.1:1', retries: { attempts: 1 } },
      ],
    },
    onExchange: () => recorded++,
  })
  const one = async () => {
    const socket = connect(service.address.port, '127.0.0.1')
    const closed = once(socket, 'close')
    socket.on('error', () => {})
    const method = pick(['GET', 'GET', 'POST'])
    const path = pick(['/', '/', '/', '/', '/down'])
    socket.write(
      `${method} ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${method === 'POST' ? 'content-length: 0\r\n' : ''}\r\n`,
    )
    const leave = next()
    if (leave < 0.15) socket.once('data', () => socket.resetAndDestroy())
    else if (leave < 0.3) up.until(() => next() < 0.2).then(() => socket.resetAndDestroy())
    else socket.resume()
    await closed
  }
  for (let round = 0; round < 15; round++) await Promise.all(Array.from({ length: 40 }, one))
  while (service.stats().active > 0) await nextTurn()
  const { idle, connections } = service.stats().upstreams
  expect(connections).toBe(idle)
  // A caller that left before anything was read is no exchange.
  expect(recorded).toBe(service.stats().total)
  expect(recorded).toBeGreaterThan(400)
  await service.close({ graceMs: 0 })
  expect(service.stats()).toMatchObject({ active: 0, connections: 0, upstreams: { connections: 0, idle: 0 } })
  await up.until(() => up.sockets.every(socket => socket.destroyed))
  await up.stop()
})
