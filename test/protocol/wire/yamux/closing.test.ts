/** P3: closing a session never leads back into closing, whoever begins it and whatever is called from inside it. */
import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { Flag, FrameType } from '../../../../protocol/wire/yamux/frame.ts'
import type { Session } from '../../../../protocol/wire/yamux/session.ts'
import { frame, pattern, type RawPeer, StreamRecorder, sessionWithRawPeer, turns } from './support.ts'

const noise = { debug() {}, info() {} }

/** A session that records what it logs. */
function startLogged(onEnd: (session: Session) => void = () => {}) {
  const said: string[] = []
  const log = (level: string) => (fields: object, text: string) =>
    void said.push(`${level}: ${text} ${inspect(fields)}`)
  const made = sessionWithRawPeer({
    role: 'server',
    onStream: stream => void new StreamRecorder(stream),
    logger: { ...noise, warn: log('warn'), error: log('error') },
    onClose: () => onEnd(made.session),
  })
  return { ...made, said }
}

function inspect(fields: object): string {
  return JSON.stringify(fields)
}

/** The peer asks for answers and reads none. */
async function flood(session: Session, peer: RawPeer, meanwhile = () => {}): Promise<void> {
  peer.transport.pause()
  const pings = Buffer.concat(Array.from({ length: 2000 }, (_, i) => frame(FrameType.ping, Flag.syn, 0, i)))
  for (let i = 0; i < 60 && !session.closed; i++) {
    peer.transport.bytes(pings, () => {})
    await turns(2)
    meanwhile()
  }
}

describe('P3 answers to pings that nobody reads', () => {
  test('end the session once', async () => {
    const { session, peer, closings, said } = startLogged()
    await flood(session, peer)
    expect(closings.map(({ reason }) => reason)).toEqual(['the peer causes more answers than it reads'])
    expect(said).toHaveLength(1)
  })

  test('end the session, even if streams are announced all the time', async () => {
    const { session, peer, closings } = startLogged()
    await flood(session, peer, () => session.announce())
    expect(closings.map(({ reason }) => reason)).toEqual(['the peer causes more answers than it reads'])
  })

  test('a stream that is reset at that moment throws nothing at its caller', async () => {
    const { session, peer, closings, said } = startLogged()
    peer.transport.pause()
    const streams = Array.from({ length: 200 }, () => new StreamRecorder(session.open()))
    for (const { stream } of streams) stream.write(pattern(4000))
    await turns()
    // Resets are a kind of answer: 12 bytes each, and nobody reads them.
    let reset = 0
    for (let i = 0; !session.closed && i < 100; i++) {
      const pings = Buffer.concat(Array.from({ length: 400 }, (_, n) => frame(FrameType.ping, Flag.syn, 0, n)))
      peer.transport.bytes(pings, () => {})
      await turns(2)
      streams[reset++]?.stream.reset('cancelled')
    }
    expect(closings).toHaveLength(1)
    expect(said.filter(line => line.startsWith('error'))).toEqual([])
  })
})

const WAYS: Record<string, (session: Session, peer: RawPeer) => void | Promise<void>> = {
  close: session => session.close('closed'),
  destroy: session => session.destroy(new SallyportError('internal', 'destroyed')),
  'a violation of the peer': (_, peer) => peer.send(Buffer.from('not a frame at all')),
  'the end of the transport': (_, peer) => peer.transport.terminate(),
  'a flood of pings': flood,
}
const DOORS: Record<string, (session: Session, recorder: StreamRecorder) => void> = {
  close: session => session.close('again'),
  destroy: session => session.destroy(new SallyportError('internal', 'again')),
  'reset of a stream': (_, { stream }) => stream.reset('cancelled'),
  'write and end': (_, { stream }) => {
    stream.write('more')
    stream.end()
  },
  'ping and control': session => {
    session.ping(() => {})
    session.control({ type: 'notice' })
    session.goAway()
  },
  throw: () => {
    throw new Error('a handler threw')
  },
}

describe.each(Object.keys(WAYS))('P3 a session that ends by %s', way => {
  test.each(Object.keys(DOORS))('reports its end once, though each handler calls %s', async door => {
    let ends = 0
    const { session, peer } = startLogged(ended => {
      ends++
      DOORS[door]!(ended, recorders[0]!)
    })
    const recorders = [new StreamRecorder(session.open()), new StreamRecorder(session.open())]
    for (const recorder of recorders) {
      recorder.stream.write(pattern(100))
      recorder.stream.handler = {
        data() {},
        end() {},
        reset: code => {
          recorder.resetWith = code
          DOORS[door]!(session, recorder)
        },
        consumed: () => {
          if (session.closed) DOORS[door]!(session, recorder)
        },
      }
    }
    await WAYS[way]!(session, peer)
    await turns()
    expect([session.closed, ends]).toEqual([true, 1])
    expect([session.bufferedBytes, session.streams]).toEqual([0, 0])
  })
})

test('the end of a session tells its streams in the order in which they were opened', () => {
  const { session } = startLogged()
  const streams = Array.from({ length: 100 }, () => session.open())
  const told: number[] = []
  for (const stream of streams)
    stream.handler = { data() {}, end() {}, reset: () => told.push(stream.id), consumed() {} }
  session.destroy(new SallyportError('session-lost'))
  expect(told).toEqual(streams.map(({ id }) => id))
})
