import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { Relay, type RelayOptions } from '../support/relay.ts'

const open: Array<{ stop(): Promise<void> }> = []

afterEach(async () => {
  for (const one of open.splice(0).toReversed()) await one.stop()
})

/** An echo server behind a relay. */
async function startRelay(options: Omit<RelayOptions, 'port'> = {}): Promise<Relay> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {}).pipe(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  }
  const relay = await Relay.start({ ...options, port: (server.address() as AddressInfo).port })
  open.push({ stop }, relay)
  return relay
}

async function dial(relay: Relay): Promise<Socket> {
  const socket = connect(relay.port).on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** Sends this many bytes and reads them back. Resolves to the time that took. */
async function echo(socket: Socket, bytes: number): Promise<number> {
  const startedMs = performance.now()
  const sent = Buffer.alloc(bytes, 'abcdefg')
  socket.write(sent)
  const parts: Buffer[] = []
  while (Buffer.concat(parts).length < bytes) parts.push((await once(socket, 'data'))[0])
  expect(Buffer.concat(parts).equals(sent)).toBe(true)
  return performance.now() - startedMs
}

describe('the relay', () => {
  it('delays by the round trip, and keeps what it carries in order', async () => {
    const socket = await dial(await startRelay({ roundTripMs: 60 }))
    expect(await echo(socket, 10)).toBeGreaterThanOrEqual(58)
    await echo(socket, 1_000_000)
    socket.end()
    await once(socket, 'end')
  })

  it('limits the rate', async () => {
    const socket = await dial(await startRelay({ bytesPerSecond: 1_000_000 }))
    expect(await echo(socket, 200_000)).toBeGreaterThanOrEqual(190)
    socket.destroy()
  })

  it('cuts with a reset', async () => {
    const relay = await startRelay()
    const socket = await dial(relay)
    await echo(socket, 10)
    const broken = once(socket, 'close').catch(error => error)
    expect(relay.cut()).toBe(1)
    expect(await broken).toMatchObject({ code: 'ECONNRESET' })
    expect(relay.connections.size).toBe(0)
  })

  it('as a black hole it signals nothing; what was sent meanwhile arrives when the path returns', async () => {
    const relay = await startRelay()
    const [lasting, leaving] = await Promise.all([dial(relay), dial(relay)])
    await Promise.all([echo(lasting, 10), echo(leaving, 10)])
    relay.silent = true
    leaving.resetAndDestroy()
    const answer = echo(lasting, 1000)
    const isEarly = await Promise.race([answer.then(() => true), dial(relay).then(() => false)])
    expect(isEarly).toBe(false)
    expect(relay.connections.size).toBeGreaterThanOrEqual(2)
    relay.silent = false
    await answer
    lasting.destroy()
  })
})
