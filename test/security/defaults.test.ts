/**
 * security.md, "Defaults": each limit has a name and the value that the documents promise, and a lower one takes
 * effect.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect as connectTcp } from 'node:net'
import { resolve } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { MAX_CLAIMED_HOSTS } from '../../protocol/base/names.ts'
import { DEFAULT_HTTP_LIMITS as HTTP, type HttpLimits } from '../../protocol/http/limits.ts'
import { listen } from '../../protocol/http/listener.ts'
import { MAX_CONTROL_BYTES } from '../../protocol/wire/control.ts'
import { DEFAULT_SESSION_LIMITS as SESSION } from '../../protocol/wire/yamux/limits.ts'
import { ROOM_BYTES, TAILS_BYTES } from '../../router/handler/room.ts'
import { MAX_NAMES_WAITING } from '../../router/upstream/name-lookups.ts'
import { MAX_KEY_SET_BYTES } from '../../server/auth/key-source.ts'
import { MAX_TOKEN_BYTES } from '../../server/auth/verifier.ts'
import { DEFAULT_SERVER_LIMITS as SERVER } from '../../server/limits.ts'
import { call, ok, type RawPeer, recorder, type Seen } from '../protocol/http/http1/raw.ts'
import { FakeClock, pattern, sessionWithRawPeer } from '../protocol/wire/yamux/support.ts'
import { END_HEADERS, END_STREAM, frame, framesOf, head, PREFACE, TYPE } from '../support/http2-frames.ts'

const ALL: Record<string, number> = {
  ...prefixed('public.limits', HTTP),
  ...prefixed('limits', SERVER),
  ...prefixed('session', SESSION),
  'fixed: token': MAX_TOKEN_BYTES,
  'fixed: key set': MAX_KEY_SET_BYTES,
  'fixed: hosts of a token': MAX_CLAIMED_HOSTS,
  'fixed: captured names that wait': MAX_NAMES_WAITING,
  'fixed: webhooks that wait whole': ROOM_BYTES,
  'fixed: tails of webhooks': TAILS_BYTES,
  'fixed: control message': MAX_CONTROL_BYTES,
}

function prefixed(prefix: string, limits: object): Record<string, number> {
  return Object.fromEntries(Object.entries(limits).map(([name, value]) => [`${prefix}.${name}`, value as number]))
}

describe('Defaults', () => {
  test('docs/security.md lists every limit with its value', () => {
    const document = readFileSync(resolve(import.meta.dirname, '../../docs/security.md'), 'utf8')
    const rows = [...document.matchAll(/^\| `([\w.]+|fixed: [\w ]+)` \| ([\d,.]+) \|/gm)]
    const listed = Object.fromEntries(rows.map(([, name, value]) => [name, Number(value!.replaceAll(',', ''))]))
    expect(listed).toEqual(ALL)
  })
})

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function startListener(
  limits: Partial<HttpLimits>,
  answer: (seen: Seen) => void = ({ response }) => ok(response),
) {
  const { handler, seen } = recorder(answer)
  const listener = await listen({ port: 0, handler, limits })
  const caller = await call(listener.address.port)
  open.push(
    () => listener.close({ graceMs: 0 }),
    () => caller.socket.destroy(),
  )
  return { caller, seen, port: listener.address.port }
}

const unauthorized = ({ response }: Seen) => {
  response.responseHead({ status: 401, headers: [], bodyBytes: 0 })
  response.responseEnd([])
}

describe('lower limits at the edge', () => {
  test('drainBytes: a longer rest closes the connection, a shorter one does not', async () => {
    const post = (bytes: number) => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n\r\n`
    const { caller } = await startListener({ drainBytes: 100 }, unauthorized)
    caller.send(`${post(50)}${'x'.repeat(50)}`)
    expect(await caller.saying('HTTP/1.1 401')).not.toContain('connection: close')
    caller.send(post(500))
    expect(await caller.saying('HTTP/1.1 401', 2)).toContain('connection: close')
    await caller.end()
  })

  test('drainMs: a rest that never arrives ends the connection', async () => {
    const { caller } = await startListener({ drainMs: 60 }, unauthorized)
    caller.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n')
    await caller.saying('HTTP/1.1 401')
    await caller.close()
  })

  test('bufferBytes: a handler that reads nothing is sent no more', async () => {
    const taken: number[] = []
    const listener = await listen({
      port: 0,
      limits: { bufferBytes: 10_000 },
      handler: () => ({
        requestData: chunk => taken.push(chunk.length),
        requestEnd() {},
        requestAbort() {},
        responseConsumed() {},
      }),
    })
    open.push(() => listener.close({ graceMs: 0 }))
    const socket = connectTcp(listener.address.port, '127.0.0.1')
    open.push(() => socket.destroy())
    socket.on('error', () => {})
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n')
    const piece = Buffer.alloc(64 * 1024)
    // The kernel's buffers fill up, since nobody reads.
    while (socket.write(piece));
    let stuck = false
    while (!stuck) {
      const drained = once(socket, 'drain').then(() => true)
      stuck = !(await Promise.race([drained, new Promise<false>(done => setTimeout(done, 200, false))]))
      if (!stuck) while (socket.write(piece));
    }
    // One read from the socket may exceed it.
    expect(taken.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThanOrEqual(10_000 + 64 * 1024)
  })

  test('headBytes, headFields, uriBytes', async () => {
    const status = async (limits: Partial<HttpLimits>, text: string) => {
      const { caller } = await startListener(limits)
      caller.send(text)
      return /^HTTP\/1\.1 (\d+)/.exec(await caller.saying('\r\n\r\n'))?.[1]
    }
    const small = 'GET /12345678 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n'
    expect(await status({}, small)).toBe('200')
    expect(await status({ headBytes: 20 }, small)).toBe('431')
    expect(await status({ headFields: 1 }, small)).toBe('431')
    expect(await status({ uriBytes: 5 }, small)).toBe('414')
  })
})

async function startHttp2(limits: Partial<HttpLimits>, answer?: (seen: Seen) => void) {
  const started = await startListener(limits, answer)
  const { caller } = started
  caller.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]))
  await caller.until(() => received(caller).some(({ type }) => type === TYPE.window))
  return started
}

const received = (peer: RawPeer) => framesOf(Buffer.from(peer.text, 'latin1'))

describe('changed HTTP/2 limits', () => {
  test('http2Streams, http2WindowBytes, http2SessionWindowBytes are announced', async () => {
    const { caller } = await startHttp2({ http2Streams: 7, http2WindowBytes: 70_000, http2SessionWindowBytes: 700_000 })
    const { payload } = received(caller).find(({ type }) => type === TYPE.settings)!
    const settings = new Map<number, number>()
    for (let at = 0; at < payload.length; at += 6) settings.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2))
    expect([settings.get(3), settings.get(4)]).toEqual([7, 70_000])
    const window = received(caller).find(({ type, stream }) => type === TYPE.window && stream === 0)!
    expect(window.payload.readUInt32BE(0)).toBe(700_000 - 65_535)
  })

  test('http2ResetBurst and http2ResetRate: fewer resets end the session', async () => {
    const { caller, seen } = await startHttp2({ http2ResetBurst: 5, http2ResetRate: 1 }, () => {})
    for (let n = 0; n < 50; n++) {
      const id = 2 * n + 1
      const cancel = frame(TYPE.reset, 0, id, Buffer.from([0, 0, 0, 8]))
      caller.send(Buffer.concat([frame(TYPE.headers, END_HEADERS | END_STREAM, id, head()), cancel]))
    }
    await caller.end()
    expect(seen.length).toBeLessThan(50)
  })

  test('http2ControlBytes: fewer bytes without payload end the session', async () => {
    const { caller } = await startHttp2({ http2ControlBytes: 100 })
    const update = frame(TYPE.window, 0, 0, Buffer.from([0, 0, 0, 1]))
    caller.send(Buffer.concat(Array.from({ length: 1000 }, () => update)))
    await caller.end()
  })
})

describe('lower limits for a session', () => {
  test('writeDeadlineMs', async () => {
    const clock = new FakeClock()
    const { session, peer, closings } = sessionWithRawPeer({ role: 'server', clock, writeDeadlineMs: 1000 })
    peer.transport.pause()
    session.open().write(pattern(1_000_000))
    await clock.advance(2500)
    expect(closings).toMatchObject([{ reason: expect.stringMatching(/stopped reading/) }])
  })

  test('openDeadlineMs', async () => {
    const clock = new FakeClock()
    const { session } = sessionWithRawPeer({ role: 'server', clock, openDeadlineMs: 1000 })
    session.open().write(Buffer.from('x'))
    await clock.advance(2500)
    expect(session.streams).toBe(0)
  })

  test('resetsPerSecond', async () => {
    const clock = new FakeClock()
    const onStream = (stream: { reset(code: 'refused'): void }) => stream.reset('refused')
    const { session, peer } = sessionWithRawPeer({ role: 'client', clock, onStream, resetBurst: 1, resetsPerSecond: 2 })
    const opening = (n: number) => {
      const bytes = Buffer.alloc(12)
      bytes[1] = 1
      bytes[3] = 1
      bytes.writeUInt32BE(2 * n, 4)
      return bytes
    }
    for (let n = 1; n <= 5; n++) {
      peer.send(opening(n))
      await clock.advance(1000)
    }
    expect(session.closed).toBe(false)
    for (let n = 6; n <= 10; n++) peer.send(opening(n))
    await clock.advance(1)
    expect(session.closed).toBe(true)
  })
})
