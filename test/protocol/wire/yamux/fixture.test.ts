import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { memoryPair } from '../../../../protocol/wire/transport-memory.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import { FrameReader, RawPeer, StreamRecorder, turns } from './support.ts'

interface Line {
  readonly from: 'server' | 'client'
  readonly text: string | undefined
  readonly bytes: Buffer
}

const RECORDED: Line[] = readFileSync(new URL('../fixtures/yamux-v1-session.txt', import.meta.url), 'utf8')
  .split('\n')
  .map(line => /^(server|client)>(text)? (.*)$/.exec(line))
  .filter(match => match !== null)
  .map(([, from, text, rest]) => ({
    from: from as Line['from'],
    text: text && rest!,
    bytes: text ? Buffer.alloc(0) : Buffer.from(rest!, 'hex'),
  }))

/** What a recorded end saw, in words. */
const CLIENT_SAW = [
  'text {"type":"welcome","windowBytes":4096}',
  'stream 2: GET / preamble and head',
  'stream 2 end',
  'stream 4: POST /upload ',
  'stream 4: 2,500 times u',
  'stream 6: GET /events',
  'stream 6 reset cancelled',
  'stream 4 reset session-lost',
  'closed: done',
]

const SERVER_FRAMES = [
  'data SYN 2 23',
  'window FIN 2 0',
  'data SYN 4 13',
  'data - 4 2500',
  'ping ACK 0 1',
  'data SYN 6 11',
  'window RST 6 0',
  'ping SYN 0 1',
  'go-away - 0 0',
]

const CLIENT_FRAMES = [
  'data ACK 2 17',
  'window FIN 2 0',
  'window ACK 4 0',
  'window - 4 2513',
  'ping SYN 0 1',
  'window ACK 6 0',
  'data - 6 9',
  'data - 6 9',
  'window RST 4 0',
  'ping ACK 0 1',
]

function frames(from: Line['from']): string[] {
  const reader = new FrameReader()
  for (const line of RECORDED) if (line.from === from) reader.push(line.bytes)
  return reader.frames.map(({ type, flags, id, length }) => {
    const names = ['SYN', 'ACK', 'FIN', 'RST'].filter((_, bit) => flags & (1 << bit))
    return `${['data', 'window', 'ping', 'go-away'][type]} ${names.join('+') || '-'} ${id} ${length}`
  })
}

test('a recorded session of version 1 must always decode: its frames', () => {
  expect(frames('server')).toEqual(SERVER_FRAMES)
  expect(frames('client')).toEqual(CLIENT_FRAMES)
})

test.each([1, 7, 13, 100_000])(
  'a recorded session of version 1 must always decode: a client that receives it in cuts of %i',
  async cut => {
    const saw: string[] = []
    const [ours, theirs] = memoryPair()
    const peer = new RawPeer(theirs)
    peer.answersPings = false
    const client = createSession(ours, {
      role: 'client',
      onControl: text => saw.push(`text ${text}`),
      onClose: (_, reason) => saw.push(`closed: ${reason}`),
      onStream: stream => {
        const recorder = new StreamRecorder(stream)
        const say = (words: string): number => saw.push(`stream ${stream.id}${words}`)
        const told = (chunk: Uint8Array): void => {
          const text = Buffer.from(chunk).toString('latin1')
          // Payload arrives as it is cut; it is joined again here.
          if (recorder.chunks.length > 0 && saw.at(-1)?.startsWith(`stream ${stream.id}: `)) saw.push(saw.pop()! + text)
          else say(`: ${text}`)
          recorder.chunks.push(chunk)
          stream.consumed(chunk.length)
        }
        recorder.data = chunk => told(chunk)
        recorder.end = () => {
          say(' end')
          stream.end()
        }
        recorder.reset = code => say(` reset ${code}`)
      },
    })
    client.setPeerLimits({ windowBytes: 4096 })
    for (const { from, text, bytes } of RECORDED) {
      if (from === 'client') {
        await turns(1)
        continue
      }
      if (text !== undefined) {
        if (text !== '{"type":"bye"}') theirs.control(text)
        continue
      }
      for (let offset = 0; offset < bytes.length; offset += cut)
        theirs.bytes(bytes.subarray(offset, offset + cut), () => {})
      // The peer writes the two parts of one stream's body separately; a mark keeps them apart here, too.
      await turns(2)
      saw.push('-')
    }
    theirs.close(1000, 'done')
    await turns()
    expect(saw.filter(line => line !== '-').map(line => line.replace('u'.repeat(2500), '2,500 times u'))).toEqual(
      CLIENT_SAW,
    )
  },
)
