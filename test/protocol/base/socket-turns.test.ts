/** Sockets whose bytes take long to handle leave others their turns. */
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { beginLater, heardFirst, SocketTurns } from '../../../protocol/base/socket-turns.ts'
import { SocketReader } from '../../../protocol/http/http1/socket-reader.ts'
import { WEBSOCKET_OPTIONS } from '../../../protocol/wire/transport.ts'
import { webSocketTransport } from '../../../protocol/wire/transport-websocket.ts'
import { work } from '../../support/busy.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { until } from '../../support/until.ts'

const secrets = await makeSecrets()
const nextTurn = () => new Promise(resolve => setImmediate(resolve))
const endings: (() => void)[] = []
afterEach(() => {
  for (const end of endings.splice(0)) end()
})

interface Line {
  send(bytes: Buffer): void
  /** The socket that is read. */
  readonly socket: Socket
}

type Door = (isTls: boolean, read: (bytes: Buffer) => void) => Promise<Line>

const connection: Door = async (isTls, read) => {
  const server = isTls ? createTlsServer(secrets.server) : createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(server, isTls ? 'secureConnection' : 'connection')
  const to = { port: (server.address() as AddressInfo).port, host: '127.0.0.1', rejectUnauthorized: false }
  const from = isTls ? connectTls(to) : connect(to)
  const [socket] = (await accepted) as [Socket]
  const onRead = (bytes: Buffer) => {
    read(bytes)
    return false
  }
  new SocketReader().read(socket, onRead, { threw: () => socket.destroy() })
  for (const each of [from, socket]) each.on('error', () => {})
  endings.push(() => {
    for (const each of [from, socket]) each.destroy()
    server.close()
  })
  return { send: bytes => from.write(bytes), socket }
}

const webSocket: Door = async (isTls, read) => {
  const server = isTls ? createHttpsServer(secrets.server) : createHttpServer()
  const webSockets = new WebSocketServer({ server, ...WEBSOCKET_OPTIONS })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(webSockets, 'connection')
  const place = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const from = new WebSocket(`${isTls ? 'wss' : 'ws'}://${place}`, { ...WEBSOCKET_OPTIONS, rejectUnauthorized: false })
  const [[to]] = (await Promise.all([accepted, once(from, 'open')])) as [[WebSocket & { _socket: Socket }], unknown]
  webSocketTransport(to).handler = { bytes: chunk => read(chunk as Buffer), control: () => {}, closed: () => {} }
  for (const each of [from, to]) each.on('error', () => {})
  endings.push(() => {
    for (const each of [from, to]) each.terminate()
    server.close()
  })
  const send = (bytes: Buffer) => {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) from.send(bytes.subarray(at, at + PIECE_BYTES))
  }
  return { send, socket: to._socket }
}

const PIECE_BYTES = 64 * 1024
/** Far more than is read in one turn. */
const FLOOD = Buffer.from(Uint32Array.from({ length: 1024 * 1024 }, (_, i) => i).buffer)
/** With TLS, one read of a flood has up to four records, and the turn in which the byte is sent goes on for that long. */
const MOST_BETWEEN = 8
const SENT = 9
/** Afterwards, time is saved. */
const LONG_READS = 100

/** Longer than a turn should take. */
const WORK_MS = 3

/** A line whose bytes take long to handle. */
async function flood(door: Door, isTls: boolean, onRead: (reads: number) => void = () => {}) {
  const seen: Buffer[] = []
  let seenBytes = 0
  const line = await door(isTls, bytes => {
    seen.push(Buffer.from(bytes))
    seenBytes += bytes.length
    if (seen.length < LONG_READS) work(WORK_MS)
    onRead(seen.length)
  })
  line.send(FLOOD)
  return { ...line, seen, isRead: () => seenBytes === FLOOD.length }
}

describe.each([
  ['connections', connection, false],
  ['connections with TLS', connection, true],
  ['WebSockets', webSocket, false],
  ['WebSockets with TLS', webSocket, true],
])('of %s', (_name, door, isTls) => {
  test.each([
    ['one', 1],
    ['several', 4],
  ])('%s whose bytes take long leave another its turns', async (_count, count) => {
    /** How many reads of the others came between the sending and the reading of each byte. */
    const between: number[] = []
    let reads = -1
    const canary = await door(isTls, () => {
      between.push(reads)
      reads = -1
    })
    const onRead = () => {
      if (++reads === 0) canary.send(Buffer.from('x'))
    }
    await Promise.all(Array.from({ length: count }, () => flood(door, isTls, onRead)))
    await until(() => between.length >= SENT)
    expect(between.sort((a, b) => a - b)[SENT >> 1]).toBeLessThanOrEqual(MOST_BETWEEN)
  })

  test('one is not read on while it is paused', async () => {
    const { socket, seen, isRead } = await flood(door, isTls, reads => {
      if (reads === 1) socket.pause()
    })
    await until(() => seen.length > 0)
    for (let turns = 0; turns < 20; turns++) await nextTurn()
    expect(socket.isPaused()).toBe(true)
    const { length } = seen
    for (let turns = 0; turns < 20; turns++) await nextTurn()
    expect(seen.length).toBe(length)
    socket.resume()
    await until(isRead)
    expect(Buffer.concat(seen).equals(FLOOD)).toBe(true)
  })

  test('one may end while it rests', async () => {
    const { socket, seen } = await flood(door, isTls, () => socket.destroy())
    await until(() => seen.length > 0)
    await until(() => socket.closed)
  })
})

let nowMs = 0

/** Nothing takes time but what a test says. */
async function stopClock(): Promise<void> {
  await nextTurn()
  nowMs = performance.now()
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
}

/** Sockets that rest when they are said to have taken this many milliseconds each, one after the other in one turn. */
function turnsOf(...took: number[]) {
  const rests = took.map(() => false)
  const sockets = took.map((_, i) => {
    const handle = { reading: true, readStop: () => (rests[i] = true), readStart: () => (rests[i] = false) }
    return new SocketTurns({ _handle: handle } as unknown as Socket)
  })
  for (const [i, ms] of took.entries()) sockets[i]!.took(nowMs - ms)
  return rests
}

describe('a socket', () => {
  beforeEach(stopClock)

  test.each([
    ['that has taken more than 2 ms rests', [2.1], [true]],
    ['that has taken less does not', [1.5], [false]],
    [
      'rests earlier in a turn of more than 8 ms',
      [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5],
      Array(7).fill(false).with(5, true).with(6, true),
    ],
    ['with a usual request does not rest then', [9, 0.01], [true, false]],
  ])('%s', async (_name, took, rests) => {
    const found = turnsOf(...took)
    expect(found).toEqual(rests)
    await until(() => !found.includes(true))
  })

  test('owes a few turns for a long pause', async () => {
    const found = turnsOf(10_000)
    let turns = 0
    for (; found[0]; turns++) await nextTurn()
    expect(turns).toBeLessThanOrEqual(5)
  })

  test.each([3, 8, 100])('that rests for %s ms is heard before a deadline that is due by then', async ms => {
    const heard: string[] = []
    const { socket, send } = await connection(false, bytes => heard.push(bytes.toString()))
    send(Buffer.from('early'))
    await until(() => heard.length === 1)
    await nextTurn()
    const turns = new SocketTurns(socket)
    turns.took(performance.now() - ms)
    send(Buffer.from('in time'))
    heardFirst(() => heard.push('deadline'))(undefined)
    await until(() => heard.length === 3)
    expect(heard).toEqual(['early', 'in time', 'deadline'])
  })

  test('that rests again and again delays no deadline for long', async () => {
    const late = vi.fn()
    let found = turnsOf(9)
    heardFirst(late)(undefined)
    for (let turns = 0; turns < 8; turns++) {
      found = turnsOf(9)
      await nextTurn()
    }
    expect(late).toHaveBeenCalledOnce()
    await until(() => !found.includes(true))
  })

  test('rests no longer than its share takes, if others take more', async () => {
    const found = turnsOf(...Array(40).fill(1.5))
    let turns = 0
    for (; found.includes(true); turns++) {
      turnsOf(1.5, 1.5, 1.5, 1.5)
      await nextTurn()
    }
    expect(turns).toBeLessThanOrEqual(20)
  })

  test('rests no longer because of those that have ended meanwhile', async () => {
    const found = turnsOf(3)
    let turns = 0
    for (; found[0]; turns++) {
      for (let i = 0; i < 4; i++) {
        const socket: { _handle: object | null } = { _handle: {} }
        new SocketTurns(socket as unknown as Socket).took(nowMs - 5)
        socket._handle = null
      }
      await nextTurn()
    }
    expect(turns).toBeLessThanOrEqual(5)
  })

  test('reads on before one that has taken more, and one in a turn', async () => {
    const found = turnsOf(7, 3, 3)
    const seen: boolean[][] = []
    while (found.includes(true)) {
      await nextTurn()
      if (seen.at(-1)?.join() !== found.join()) seen.push([...found])
    }
    expect(seen).toEqual([
      [true, true, true],
      [true, false, true],
      [true, false, false],
      [false, false, false],
    ])
  })
})

describe('connections that have requests to begin', () => {
  beforeEach(stopClock)

  /** Connections that work whenever they begin requests. Returns who did so, in order. */
  function begin(count: number, times: number): number[] {
    const begun: number[] = []
    for (let i = 0; i < count; i++) {
      let left = times
      const beginner = {
        beginMore: () => {
          begun.push(i)
          nowMs += WORK_MS
          if (--left > 0) beginLater(beginner)
        },
        threw: () => {},
      }
      beginLater(beginner)
    }
    return begun
  }

  test('do so one after the other, and leave others their turns', async () => {
    const begun = begin(4, 3)
    for (let turns = 1; turns <= 12; turns++) {
      await nextTurn()
      expect(begun.length).toBe(turns)
    }
    expect(begun).toEqual([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3])
  })

  test.each([
    ['', 200, 0.4],
    [', also those of sockets that rest', 20, 4],
  ])('have as much time as reads have taken%s', async (_what, count, ms) => {
    turnsOf(...Array(count).fill(ms))
    const begun = begin(4, 1)
    await nextTurn()
    expect(begun.length).toBeGreaterThan(1)
  })

  test.each([
    [1, 16],
    [16, 16],
    [64, 4],
    [300, 1],
  ])('%i begin at most %i each', async (count, most) => {
    const begun: number[] = []
    for (let i = 0; i < count; i++) beginLater({ beginMore: most => begun.push(most), threw: () => {} })
    await until(() => begun.length === count)
    expect(begun[0]).toBe(most)
  })

  test('end alone if they throw', async () => {
    const threw: unknown[] = []
    const error = new Error('not mine')
    const beginMore = () => {
      throw error
    }
    beginLater({ beginMore, threw: error => threw.push(error) })
    const begun = begin(1, 2)
    await until(() => begun.length === 2)
    expect(threw).toEqual([error])
  })
})
