/**
 * Who holds what of an exchange that another replica took over, in every state of it and whatever happens next: in the
 * end nothing is counted at the link or the session, and nothing is open.
 */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { parseCidrs } from '../../../protocol/base/address.ts'
import { createBufferBudget } from '../../../protocol/base/budget.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { REFUSALS } from '../../../protocol/wire/exchange/refusal.ts'
import { type Preamble, preambleText } from '../../../protocol/wire/preamble.ts'
import { STREAM_KIND, type StreamKind } from '../../../protocol/wire/stream-kinds.ts'
import { type MemoryTransport, memoryPair } from '../../../protocol/wire/transport-memory.ts'
import type { Session, SessionOptions } from '../../../protocol/wire/yamux/session.ts'
import { RESET_CODES, type Stream } from '../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { type SplicedSession, splice } from '../../../server/peer/splice.ts'
import { pattern, StreamRecorder, turns } from '../../protocol/wire/yamux/support.ts'
import { until } from '../../support/until.ts'

const KIB = 1024

interface Spliced {
  /** The exchange at the replica that the caller reached, and at the client. */
  readonly near: StreamRecorder
  far: StreamRecorder | undefined
  open(runtime?: string, kind?: StreamKind): StreamRecorder
  /** A stream that starts with this in place of a preamble. */
  openRaw(said: string): Stream
  readonly link: Session
  readonly session: Session
  readonly linkTransport: MemoryTransport
  readonly sessionTransport: MemoryTransport
  readonly clientTransport: MemoryTransport
  readonly exchanges: { exchanges: number }
  readonly clients: StreamRecorder[]
}

const open: Session[] = []
afterEach(() => {
  vi.useRealTimers()
  for (const session of open.splice(0)) session.close('done')
})

interface Settings {
  readonly link?: Partial<SessionOptions>
  readonly session?: Partial<SessionOptions>
  readonly owner?: Partial<SplicedSession>
}

const PREAMBLE: Preamble = {
  kind: STREAM_KIND.exchange,
  exchangeId: 'x'.repeat(16),
  attempt: 0,
  runtime: 'demo',
  epoch: 1,
  timeLeftMs: 0,
  callerAddress: '192.0.2.1',
  callerScheme: 'https',
  hops: 1,
  bodyBytes: -1,
  callerHost: undefined,
}

/** Two replicas and a client; nobody consumes anything unless told to. */
function startSplice(settings: Settings = {}): Spliced {
  const [nearEnd, linkTransport] = memoryPair()
  const [sessionTransport, clientEnd] = memoryPair()
  const spliced: { far: StreamRecorder | undefined; clients: StreamRecorder[] } = { far: undefined, clients: [] }
  const session = createSession(sessionTransport, { role: 'server', ...settings.session })
  const client = createSession(clientEnd, {
    role: 'client',
    onStream: stream => {
      const recorder = new StreamRecorder(stream, false)
      spliced.clients.push(recorder)
      spliced.far ??= recorder
    },
  })
  const owner = {
    callers: undefined,
    exchanges: 0,
    open: () => session.open(),
    gaveFor() {},
    released: () => owner.exchanges--,
    ...settings.owner,
  }
  const link = createSession(linkTransport, {
    role: 'server',
    ...settings.link,
    onStream: stream =>
      splice(stream, {
        pick: (runtime, epoch, ownHost = 'its.example') =>
          runtime !== 'nobody' && epoch === 1 && ownHost === 'its.example' ? owner : undefined,
        leave() {},
        tell() {},
      }),
  })
  const nearLink = createSession(nearEnd, { role: 'client' })
  open.push(session, client, link, nearLink)
  const openOne = (runtime = 'demo', kind: StreamKind = STREAM_KIND.exchange) => {
    const recorder = new StreamRecorder(nearLink.open(), false)
    recorder.stream.write(preambleText({ ...PREAMBLE, kind, runtime }))
    return recorder
  }
  return Object.assign(spliced, {
    near: openOne(),
    open: openOne,
    openRaw: (said: string) => {
      const stream = nearLink.open()
      stream.write(Buffer.from(said, 'latin1'))
      return stream
    },
    link,
    session,
    linkTransport,
    sessionTransport,
    clientTransport: clientEnd,
    exchanges: owner,
  })
}

type Step = (spliced: Spliced) => void

/** The state of the request and of the answer when it happens. Waiting bytes exceed the windows. */
const REQUESTS: Record<string, Step> = {
  'a request that is whole': ({ near }) => near.stream.end(),
  'a request that waits, whole': ({ near }) => {
    near.stream.write(pattern(300 * KIB))
    near.stream.end()
  },
  'a request that waits, and goes on': ({ near }) => near.stream.write(pattern(600 * KIB)),
}
const ANSWERS: Record<string, Step> = {
  'no answer': () => {},
  'an answer that goes on': ({ far }) => far!.stream.write(pattern(600 * KIB)),
  'an answer that waits, whole': ({ far }) => {
    far!.stream.write(pattern(300 * KIB))
    far!.stream.end()
  },
  'an answer that is whole': ({ far, near }) => {
    near.consumes = true
    far!.stream.write('answer')
    far!.stream.end()
  },
}
/** Each of these ends the exchange for one of its ends. */
const EVENTS: Record<string, Step> = {
  'the caller resets': ({ near }) => near.stream.reset('cancelled'),
  'the client resets': ({ far }) => far!.stream.reset('cancelled'),
  'the link is lost': ({ linkTransport }) => linkTransport.terminate(),
  'the session is lost': ({ sessionTransport }) => sessionTransport.terminate(),
}

const CASES = Object.keys(REQUESTS).flatMap(request =>
  Object.keys(ANSWERS).flatMap(answer =>
    Object.keys(EVENTS).flatMap(first => Object.keys(EVENTS).map(second => ({ request, answer, first, second }))),
  ),
)

describe('D3 an exchange that is not for this replica is refused, and nothing of it is forwarded', () => {
  const text = (more: Partial<Preamble> = {}) => preambleText({ ...PREAMBLE, ...more })
  const full = () => {
    throw new Error('it takes no more')
  }
  const CASES: [name: string, code: keyof typeof REFUSALS, said: string, owner?: Partial<SplicedSession>][] = [
    ['nothing at all', 'malformed', ''],
    ['half a preamble', 'malformed', text().slice(0, 20)],
    ['a preamble of another kind', 'malformed', `\x07${text().slice(1)}`],
    ['a preamble of no address', 'malformed', text({ callerAddress: 'nobody' })],
    ['one that never ends', 'malformed', `\x01${'\x80\x00\xff\xff'.repeat(2000)}`],
    ['no hop', 'not-here', text({ hops: 0 })],
    ['D5 a second hop', 'not-here', text({ hops: 2 })],
    ['another runtime', 'not-here', text({ runtime: 'nobody' })],
    ['another epoch', 'not-here', text({ epoch: 2 })],
    ['a host that no token names', 'not-its-host', text({ ownHost: 'other.example' })],
    ['a host that no token names, on another epoch', 'not-here', text({ ownHost: 'other.example', epoch: 2 })],
    ['a caller who may not', 'caller-not-allowed', text(), { callers: parseCidrs(['198.51.100.0/24']) }],
    ['a session that is full', 'overloaded', text(), { open: full }],
  ]
  test.each(CASES)('%s: %s', async (_name, code, said, owner = {}) => {
    const spliced = startSplice({ owner })
    // The one that came with the fixture.
    spliced.near.stream.reset('cancelled')
    await turns()
    const before = spliced.clients.length
    const recorder = new StreamRecorder(spliced.openRaw(said))
    recorder.stream.end()
    await until(() => recorder.ended || recorder.resetWith !== undefined)
    expect([recorder.text, recorder.resetWith]).toEqual([`\x02${String.fromCharCode(REFUSALS[code])}`, undefined])
    await turns()
    expect([spliced.clients.length, spliced.link.streams, spliced.link.bufferedBytes]).toEqual([before, 0, 0])
    expect(spliced.exchanges.exchanges).toBe(0)
  })
})

test('an exchange whose session is lost before any of it was sent is refused', async () => {
  let session: Session | undefined
  const lost = () => {
    const stream = session!.open()
    queueMicrotask(() => session!.destroy(new SallyportError('session-lost')))
    return stream
  }
  const spliced = startSplice({ owner: { open: lost } })
  session = spliced.session
  await until(() => spliced.near.resetWith !== undefined)
  expect([spliced.near.resetWith, spliced.clients, spliced.exchanges.exchanges]).toEqual(['refused', [], 0])
})

describe('why the client ended an exchange', () => {
  const told = async (end: Step, session?: Partial<SessionOptions>) => {
    const spliced = startSplice({ session: session ?? {} })
    await until(() => spliced.far !== undefined)
    end(spliced)
    await until(() => spliced.near.resetWith !== undefined)
    return spliced.near.resetWith
  }

  test.each(RESET_CODES)(
    'reaches the other replica: %s, unless it says that its session, which is there, is lost',
    async code => {
      const expected = code === 'session-lost' ? 'cancelled' : code
      expect(await told(({ far }) => far!.stream.reset(code))).toBe(expected)
    },
  )

  test.each<[how: string, Step]>([
    ['is lost', ({ sessionTransport }) => sessionTransport.terminate()],
    ['is ended by its client', ({ clientTransport }) => clientTransport.terminate()],
    ['is ended here', ({ session }) => session.destroy(new SallyportError('session-lost'))],
    ['is closed here', ({ session }) => session.close('done')],
  ])('that a session %s is heard as what it is', async (_, end) => {
    expect(await told(end)).toBe('session-lost')
    const bothEnd: Step = spliced => {
      // The reason of a reset that never comes.
      spliced.far!.stream.session.control({ type: 'reset', stream: spliced.far!.stream.id, code: 'limit' })
      end(spliced)
    }
    expect(await told(bothEnd)).toBe('session-lost')
  })
})

describe('B1 the bytes of an exchange that was handed over', () => {
  test.each(CASES)('$request, $answer: $first, then $second', async ({ request, answer, first, second }) => {
    const spliced = startSplice()
    REQUESTS[request]!(spliced)
    await until(() => spliced.far !== undefined)
    await turns()
    ANSWERS[answer]!(spliced)
    await turns()
    EVENTS[first]!(spliced)
    await turns()
    EVENTS[second]!(spliced)
    await turns()
    // Whoever is still connected leaves as well.
    spliced.near.stream.reset('cancelled')
    await turns()
    const { link, session, exchanges } = spliced
    expect([link.bufferedBytes, session.bufferedBytes]).toEqual([0, 0])
    expect([link.streamsOver, session.streamsOver, exchanges.exchanges]).toEqual([0, 0, 0])
    expect([link.closed ? 0 : link.streams, session.closed ? 0 : session.streams]).toEqual([0, 0])
  })

  test('are acknowledged when its client has consumed them', async () => {
    const spliced = startSplice()
    let taken = 0
    Object.assign(spliced.near.stream.handler, { acknowledged: () => taken++ })
    spliced.clientTransport.pause()
    await turns(20)
    spliced.near.stream.write(pattern(100 * KIB))
    await turns(20)
    expect([taken, spliced.far]).toEqual([0, undefined])
    spliced.clientTransport.resume()
    await until(() => taken === 1)
  })

  test.each(['resets', 'takes nothing more'])(
    'an answer that is complete before its request, whose client then %s',
    async then => {
      const spliced = startSplice()
      spliced.near.consumes = true
      REQUESTS['a request that waits, whole']!(spliced)
      await until(() => spliced.far !== undefined && spliced.link.bufferedBytes > 0)
      ANSWERS['an answer that is whole']!(spliced)
      if (then === 'resets') spliced.far!.stream.reset('cancelled')
      await turns()
      expect([spliced.link.bufferedBytes, spliced.session.bufferedBytes]).toEqual([0, 0])
      expect([spliced.link.streams, spliced.session.streams, spliced.exchanges.exchanges]).toEqual([0, 0, 0])
    },
  )

  test.each(['has the answer', 'takes it later'])(
    'an upgrade whose client ends its half and then resets: the other replica, which %s, hears of it after the answer',
    async how => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
      const spliced = startSplice({ session: { initialWindowBytes: 256 * KIB } })
      await until(() => spliced.clients.length === 1)
      spliced.near.stream.reset('cancelled')
      const near = spliced.open('demo', STREAM_KIND.upgrade)
      near.consumes = how === 'has the answer'
      await until(() => spliced.clients.length === 2)
      const far = spliced.clients[1]!
      far.stream.write(pattern(400 * KIB))
      far.stream.end()
      await until(() => far.sentBytes === 400 * KIB)
      await turns(20)
      far.stream.reset('cancelled')
      await turns(20)
      vi.advanceTimersByTime(20_000)
      await turns(20)
      if (how === 'takes it later') {
        expect(near.resetWith).toBeUndefined()
        near.consumes = true
        near.stream.consumed(near.receivedBytes)
        await turns(20)
        vi.advanceTimersByTime(5000)
        await turns(20)
      }
      expect([near.receivedBytes, near.ended, near.resetWith]).toEqual([400 * KIB, true, 'cancelled'])
      expect([spliced.link.bufferedBytes, spliced.session.bufferedBytes]).toEqual([0, 0])
      expect([spliced.link.streams, spliced.session.streams, spliced.exchanges.exchanges]).toEqual([0, 0, 0])
    },
  )

  test('an upgrade whose client has ended its half counts until the caller has ended the other', async () => {
    const spliced = startSplice()
    await until(() => spliced.clients.length === 1)
    spliced.near.stream.reset('cancelled')
    const near = spliced.open('demo', STREAM_KIND.upgrade)
    await until(() => spliced.clients.length === 2)
    const far = spliced.clients[1]!
    far.stream.end()
    await until(() => near.ended)
    await turns(20)
    // A draining session waits for it.
    expect(spliced.exchanges.exchanges).toBe(1)
    const before = far.receivedBytes
    near.stream.write(pattern(KIB))
    near.stream.end()
    await until(() => far.ended)
    expect([far.receivedBytes - before, spliced.exchanges.exchanges]).toEqual([KIB, 0])
    expect([spliced.link.streams, spliced.session.streams]).toEqual([0, 0])
  })

  test('a request that arrives after its answer', async () => {
    const spliced = startSplice()
    await until(() => spliced.far !== undefined)
    ANSWERS['an answer that is whole']!(spliced)
    await turns()
    REQUESTS['a request that waits, whole']!(spliced)
    await turns(20)
    expect([spliced.link.bufferedBytes, spliced.session.bufferedBytes]).toEqual([0, 0])
    expect([spliced.link.streams, spliced.session.streams, spliced.exchanges.exchanges]).toEqual([0, 0, 0])
  })

  test('an answer that waits for the other replica counts until it has left, whatever becomes of the session', async () => {
    const budget = createBufferBudget()
    const spliced = startSplice({ session: { processBudget: budget } })
    await until(() => spliced.far !== undefined)
    spliced.near.stream.end()
    spliced.far!.stream.write(pattern(300 * KIB))
    await turns()
    spliced.far!.stream.end()
    await until(() => spliced.session.bufferedBytes > 0 && spliced.session.streams === 0)
    const held = budget.usedBytes
    spliced.sessionTransport.terminate()
    await turns()
    expect([budget.usedBytes, spliced.near.resetWith]).toEqual([held, undefined])
    // A draining session waits for it.
    expect(spliced.exchanges.exchanges).toBe(1)
    spliced.near.consumes = true
    spliced.near.stream.consumed(spliced.near.receivedBytes)
    await until(() => spliced.near.ended)
    expect([budget.usedBytes, spliced.near.receivedBytes]).toEqual([0, 300 * KIB])
    expect(spliced.exchanges.exchanges).toBe(0)
  })
})

describe('B3 at the ceiling of a link', () => {
  test('the runtime that reads nothing pays, not the one with a few bytes', async () => {
    const spliced = startSplice({ link: { sessionBufferBytes: 500 * KIB }, session: { initialWindowBytes: 4 * KIB } })
    const hostile = [spliced.near, ...Array.from({ length: 4 }, () => spliced.open())]
    for (const { stream } of hostile) stream.write(pattern(90 * KIB))
    await turns()
    const other = spliced.open('other')
    other.stream.write(pattern(100 * KIB))
    await until(() => hostile.some(({ resetWith }) => resetWith !== undefined))
    await turns()
    expect(hostile.map(({ resetWith }) => resetWith).filter(code => code === 'limit')).toHaveLength(1)
    expect(other.resetWith).toBeUndefined()
  })

  test('R7 an exchange of which nothing was passed on is refused, and never begins', async () => {
    const spliced = startSplice({ link: { sessionBufferBytes: 1100 * KIB } })
    await until(() => spliced.far !== undefined)
    spliced.clientTransport.pause()
    // A part of these fills what the session may send, so those after them wait as a whole.
    const begun = [spliced.near, ...Array.from({ length: 3 }, () => spliced.open())]
    for (const { stream } of begun) stream.write(pattern(190 * KIB))
    await turns(20)
    const waiting = Array.from({ length: 4 }, () => spliced.open())
    for (const { stream } of waiting) stream.write(pattern(240 * KIB))
    await until(() => waiting.some(({ resetWith }) => resetWith !== undefined))
    await turns(20)
    spliced.clientTransport.resume()
    await turns(50)
    const shed = [...begun, ...waiting].map(({ resetWith }) => resetWith).filter(code => code !== undefined)
    expect(new Set(shed)).toEqual(new Set(['refused']))
    expect(spliced.clients.length).toBe(begun.length + waiting.length - shed.length)
  })
})
