import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { FrameDecoder } from '../../../../protocol/wire/yamux/decoder.ts'
import { Flag, FrameType } from '../../../../protocol/wire/yamux/frame.ts'
import { FrameReader, frame } from './support.ts'

const SAMPLE = Buffer.concat([
  frame(FrameType.data, Flag.syn, 2, Buffer.from('head')),
  frame(FrameType.windowUpdate, 0, 2, 0xffff_ffff),
  frame(FrameType.data, 0, 0x7fff_ffff, new Uint8Array(0)),
  frame(FrameType.ping, Flag.syn, 0, 0x8000_0001),
  frame(FrameType.data, Flag.fin, 4, Buffer.from('the rest of a body')),
  frame(FrameType.goAway, 0, 0, 2),
])

function read(chunks: Uint8Array[]): FrameReader {
  const reader = new FrameReader()
  for (const chunk of chunks) reader.push(chunk)
  return reader
}

describe('frame decoder', () => {
  const whole = read([SAMPLE]).frames

  test('reads each member of each frame', () => {
    expect(whole.map(({ type, flags, id, length }) => [type, flags, id, length])).toEqual([
      [0, 1, 2, 4],
      [1, 0, 2, 0xffff_ffff],
      [0, 0, 0x7fff_ffff, 0],
      [2, 1, 0, 0x8000_0001],
      [0, 4, 4, 18],
      [3, 0, 0, 2],
    ])
    expect(whole[4]!.payload.toString()).toBe('the rest of a body')
  })

  test('M9 decodes the same when split at every point', () => {
    for (let at = 0; at <= SAMPLE.length; at++) {
      expect(read([SAMPLE.subarray(0, at), SAMPLE.subarray(at)]).frames).toEqual(whole)
    }
  })

  test('M9 decodes the same byte by byte', () => {
    expect(read([...SAMPLE].map(byte => Uint8Array.of(byte))).frames).toEqual(whole)
  })

  test('M9 any frame sequence split anywhere decodes the same', () => {
    const frames = fc.array(
      fc.oneof(
        fc
          .record({ flags: fc.nat(15), id: fc.nat(0xffff_ffff), payload: fc.uint8Array({ maxLength: 300 }) })
          .map(({ flags, id, payload }) => frame(FrameType.data, flags, id, payload)),
        fc
          .record({
            type: fc.constantFrom(FrameType.windowUpdate, FrameType.ping, FrameType.goAway),
            flags: fc.nat(0xffff),
            id: fc.nat(0xffff_ffff),
            length: fc.nat(0xffff_ffff),
          })
          .map(({ type, flags, id, length }) => frame(type, flags, id, length)),
      ),
      { maxLength: 20 },
    )
    fc.assert(
      fc.property(frames, fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }), (list, cuts) => {
        const bytes = Buffer.concat(list)
        const pieces: Uint8Array[] = []
        for (let offset = 0, i = 0; offset < bytes.length; i++) {
          const size = cuts[i % cuts.length]!
          pieces.push(bytes.subarray(offset, offset + size))
          offset += size
        }
        const cut = read(pieces)
        expect(cut.frames).toEqual(read([bytes]).frames)
        expect(cut.frames).toHaveLength(list.length)
      }),
    )
  })

  test('passes payload on as it arrives, whatever length is announced', () => {
    const seen: number[] = []
    const decoder = new FrameDecoder({
      frame: () => {},
      payload: chunk => seen.push(chunk.length),
      payloadEnd: () => seen.push(-1),
      broken: () => {},
    })
    decoder.push(frame(FrameType.data, 0, 2, 0xffff_ffff))
    decoder.push(new Uint8Array(10))
    decoder.push(new Uint8Array(3))
    expect(seen).toEqual([10, 3])
  })

  test.each([
    ['version', 0, 1],
    ['version', 0, 255],
    ['type', 1, 4],
    ['type', 1, 255],
  ])('M1 an unknown %s (byte %i is %i) stops it', (_, at, value) => {
    const bytes = Buffer.concat([frame(FrameType.ping, Flag.syn, 0, 1), SAMPLE])
    bytes[12 + at] = value
    const reader = read([bytes, SAMPLE])
    expect(reader.broken).toMatch(/unknown/)
    expect(reader.frames).toHaveLength(1)
  })

  test('reads nothing after stop, not even the rest of the chunk', () => {
    const ids: number[] = []
    const decoder: FrameDecoder = new FrameDecoder({
      frame: (_type, _flags, id) => {
        ids.push(id)
        decoder.stop()
      },
      payload: () => ids.push(-1),
      payloadEnd: () => ids.push(-2),
      broken: () => ids.push(-3),
    })
    decoder.push(SAMPLE)
    expect(ids).toEqual([2])
  })
})
