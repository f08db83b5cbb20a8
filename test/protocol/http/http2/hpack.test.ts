import { once } from 'node:events'
import { createServer, type ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type DecodedBlock, HpackDecoder, HpackError } from '../../../../protocol/http/http2/hpack/decoder.ts'
import { HpackEncoder } from '../../../../protocol/http/http2/hpack/encoder.ts'
import { STATIC_NAMES, STATIC_VALUES } from '../../../../protocol/http/http2/hpack/static-table.ts'
import { END_HEADERS, END_STREAM, frame, framesOf, PREFACE, TYPE, uint32 } from '../../../support/http2-frames.ts'
import { firstSeed } from '../../../support/seed.ts'
import { until } from '../../../support/until.ts'

const MOST_BYTES = 100_000
const MOST_FIELDS = 1000

const hex = (text: string) => Buffer.from(text.replaceAll(/\s/g, ''), 'hex')
const decode = (decoder: HpackDecoder, block: Buffer | string): string[] => {
  const { fields, tooLarge }: DecodedBlock = decoder.decode(
    typeof block === 'string' ? hex(block) : block,
    MOST_BYTES,
    MOST_FIELDS,
  )
  expect(tooLarge).toBe(false)
  return fields
}

const latin1 = (text: string) => Buffer.from(text, 'latin1')
const string = (text: string) => Buffer.concat([integer(0, 7, text.length), latin1(text)])
/** The literals of section 6.2. */
const INCREMENTAL = 0x40
const NEVER_INDEXED = 0x10
const WITHOUT_INDEXING = 0
const literal = (kind: number, name: string, value: string) =>
  Buffer.concat([Buffer.from([kind]), string(name), string(value)])

function integer(bits: number, prefix: number, value: number): Buffer {
  const most = 2 ** prefix - 1
  if (value < most) return Buffer.from([bits | value])
  const bytes = [bits | most]
  let rest = value - most
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push(0x80 | (rest % 0x80))
  return Buffer.from([...bytes, rest])
}
const indexed = (index: number) => integer(0x80, 7, index)
const sizeUpdate = (bytes: number) => integer(0x20, 5, bytes)

/** The blocks of appendix C. */
const C3 = [
  '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
  '8286 84be 5808 6e6f 2d63 6163 6865',
  '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65',
]
const C4 = [
  '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff',
  '8286 84be 5886 a8eb 1064 9cbf',
  '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf',
]
const C5 = [
  `4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
   2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d`,
  '4803 3330 37c1 c0bf',
  `88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
   54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
   5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31`,
]
const C6 = [
  `4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
   2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3`,
  '4883 640e ffc1 c0bf',
  `88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
   77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
   9587 3160 65c0 03ed 4ee5 b106 3d50 07`,
]

describe('the examples of RFC 7541, appendix C', () => {
  const request = [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', 'www.example.com']
  const requests = [
    request,
    [...request, 'cache-control', 'no-cache'],
    [':method', 'GET', ':scheme', 'https', ':path', '/index.html', ...request.slice(6), 'custom-key', 'custom-value'],
  ]
  const response = (status: string, second: number) => [
    ...[':status', status, 'cache-control', 'private', 'date', `Mon, 21 Oct 2013 20:13:2${second} GMT`],
    ...['location', 'https://www.example.com'],
  ]
  const cookie = 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1'
  const responses = [
    response('302', 1),
    response('307', 1),
    [...response('200', 2), 'content-encoding', 'gzip', 'set-cookie', cookie],
  ]
  /** What the third leaves in a table of 256 bytes. */
  const left = ['set-cookie', cookie, 'content-encoding', 'gzip', 'date', 'Mon, 21 Oct 2013 20:13:22 GMT']

  test.each([
    ['C.2.1', '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572', ['custom-key', 'custom-header']],
    ['C.2.2', '040c 2f73 616d 706c 652f 7061 7468', [':path', '/sample/path']],
    ['C.2.3', '1008 7061 7373 776f 7264 0673 6563 7265 74', ['password', 'secret']],
    ['C.2.4', '82', [':method', 'GET']],
  ])('%s', (_section, block, fields) => {
    expect(decode(new HpackDecoder(), block)).toEqual(fields)
  })

  test.each([
    ['C.3', C3],
    ['C.4', C4],
  ])('%s', (_section, blocks) => {
    const decoder = new HpackDecoder()
    expect(blocks.map(block => decode(decoder, block))).toEqual(requests)
    expect(tableOf(decoder)).toEqual(['custom-key', 'custom-value', 'cache-control', 'no-cache', ...request.slice(6)])
  })

  test.each([
    ['C.5', C5],
    ['C.6', C6],
  ])('%s, with a table of 256 bytes', (_section, blocks) => {
    const decoder = new HpackDecoder()
    decode(decoder, sizeUpdate(256))
    expect(blocks.map(block => decode(decoder, block))).toEqual(responses)
    expect(tableOf(decoder)).toEqual(left)
  })
})

/** The fields in a decoder's dynamic table, the newest first. */
function tableOf(decoder: HpackDecoder): string[] {
  const fields: string[] = []
  try {
    for (let index = 62; ; index++) fields.push(...decode(decoder, indexed(index)))
  } catch (error) {
    expect((error as Error).message).toBe('index beyond the table')
  }
  return fields
}

describe('what is refused', () => {
  test.each([
    ['index 0', '80', 'index 0'],
    ['an index beyond the static table, when the dynamic one is empty', 'be', 'index beyond the table'],
    ['an index beyond the dynamic table', '4001 6101 62 bf', 'index beyond the table'],
    ['the name of such an index', '7e 0162', 'index beyond the table'],
    ['an index of 2^32', 'ff ffffffff0f', 'index beyond the table'],
    ['six bytes of an integer', 'ff 808080808000', 'integer too large'],
    ['an integer that does not end', 'ff ff', 'block ends in an integer'],
    ['a literal without name', '40', 'block ends before a string'],
    ['a literal without value', '4001 61', 'block ends before a string'],
    ['a length without its string', '4001 6103 6262', 'block ends in a string'],
    ['a length of 2^32', '4001 617f ffffffff0f 62', 'block ends in a string'],
    ['a third size update', '20 3fe1 1f 3fe1 1f', 'too many size updates'],
    ['a size update behind a field', '82 20', 'size update behind a field'],
  ])('%s', (_what, block, reason) => {
    expect(() => decode(new HpackDecoder(), block)).toThrow(new HpackError(reason))
  })

  test.each([0, 100, 4096, 65_536])('a size update above a setting of %d, or above what we use', setting => {
    const most = Math.min(setting, 4096)
    expect(decode(new HpackDecoder(setting), sizeUpdate(most))).toEqual([])
    expect(() => decode(new HpackDecoder(setting), sizeUpdate(most + 1))).toThrow('size update above our setting')
  })
})

describe('Huffman codes (section 5.2)', () => {
  const huffman = (code: string) => Buffer.concat([hex('0001 61'), integer(0x80, 7, hex(code).length), hex(code)])

  test.each([
    ['no code', '', ''],
    ['no padding', 'f8', '&'],
    ['three bits of padding', '1f', 'a'],
    ['seven bits of padding', '0000007f', '00000'],
    ['NUL, the one code that no peer of node:http2 can send', 'ffc7', '\0'],
  ])('%s', (_what, code, text) => {
    expect(decode(new HpackDecoder(), huffman(code))).toEqual(['a', text])
  })

  test.each([4000, 30_000])('%d bytes, which is far more text', length => {
    expect(decode(new HpackDecoder(), huffman('00'.repeat(length)))).toEqual(['a', '0'.repeat((length * 8) / 5)])
  })

  test.each([
    ['padding with a zero', '1e'],
    ['padding with zeros only', '18'],
    ['eight bits of padding', 'f8ff'],
    ['nine and more bits of padding', '1fff'],
    ['an incomplete code', 'f8fe'],
    ['EOS instead of padding', 'ffffffff'],
    ['EOS before a symbol', 'fffffffc7f'],
  ])('%s is refused', (_what, code) => {
    expect(() => decode(new HpackDecoder(), huffman(code))).toThrow(new HpackError('Huffman code not valid'))
  })
})

describe('the bounds', () => {
  const block = Buffer.concat([literal(INCREMENTAL, 'aa', 'bbb'), literal(WITHOUT_INDEXING, 'cc', 'ddd'), indexed(62)])
  test.each([
    ['exactly as much as allowed', 15, 3, 3],
    ['one byte less', 14, 3, 2],
    ['one field less', 15, 2, 2],
    ['nothing', 0, 0, 0],
  ])('%s', (_what, mostBytes, mostFields, kept) => {
    const decoder = new HpackDecoder()
    const all = ['aa', 'bbb', 'cc', 'ddd', 'aa', 'bbb']
    const decoded = decoder.decode(block, mostBytes, mostFields)
    expect(decoded).toEqual({ fields: all.slice(0, 2 * kept), tooLarge: kept < 3 })
    expect(tableOf(decoder)).toEqual(['aa', 'bbb'])
  })

  test('nothing smaller is collected behind what was too large', () => {
    const decoder = new HpackDecoder()
    const large = Buffer.concat([literal(INCREMENTAL, 'a', 'b'.repeat(9)), literal(INCREMENTAL, 'a', 'b')])
    expect(decoder.decode(large, 9, 9)).toEqual({ fields: [], tooLarge: true })
  })
})

describe('the dynamic table', () => {
  const text = (longest: number) =>
    fc.oneof(
      fc.constantFrom('', 'a', 'b'),
      fc.nat(longest).map(length => 'x'.repeat(length)),
    )
  const step = fc.oneof(
    { weight: 8, arbitrary: fc.record({ name: text(100), value: text(1500) }) },
    { weight: 1, arbitrary: fc.record({ share: fc.nat(8) }) },
    { weight: 3, arbitrary: fc.record({ nameAt: fc.nat(200), value: text(100) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        name: fc.constant('long'),
        value: fc.constantFrom(4060, 4061).map(length => 'y'.repeat(length)),
      }),
    },
  )

  test('evicts like a list (section 4)', () => {
    fc.assert(
      fc.property(fc.constantFrom(0, 100, 4096), fc.array(step, { maxLength: 200, size: 'max' }), (setting, steps) => {
        const decoder = new HpackDecoder(setting)
        let most = 4096
        const model: [string, string][] = []
        const size = () => model.reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0)
        for (const step of steps) {
          if ('share' in step) {
            most = (setting * step.share) >>> 3
            decode(decoder, sizeUpdate(most))
          } else if ('nameAt' in step) {
            const entry = model[step.nameAt % (model.length + 1)]
            if (entry === undefined) continue
            const index = 62 + model.indexOf(entry)
            const block = Buffer.concat([integer(INCREMENTAL, 6, index), string(step.value)])
            expect(decode(decoder, block)).toEqual([entry[0], step.value])
            model.unshift([entry[0], step.value])
          } else {
            decode(decoder, literal(INCREMENTAL, step.name, step.value))
            model.unshift([step.name, step.value])
          }
          while (size() > most) model.pop()
        }
        expect(tableOf(decoder)).toEqual(model.flat())
      }),
    )
  })

  test('holds 128 entries of no bytes, each in its place', () => {
    const decoder = new HpackDecoder()
    for (let i = 0; i < 200; i++) decode(decoder, literal(INCREMENTAL, '', ''))
    expect(tableOf(decoder)).toEqual(Array.from({ length: 256 }, () => ''))
    decode(decoder, literal(INCREMENTAL, 'a', ''))
    expect(tableOf(decoder)).toEqual(['a', ...Array.from({ length: 253 }, () => '')])
  })

  test('what is not to be indexed is not', () => {
    const decoder = new HpackDecoder()
    decode(decoder, Buffer.concat([literal(WITHOUT_INDEXING, 'a', 'b'), literal(NEVER_INDEXED, 'c', 'd')]))
    expect(tableOf(decoder)).toEqual([])
  })
})

describe('the encoder', () => {
  const name = fc.oneof(
    fc.constantFrom(':status', ':method', ':path', 'cookie', 'date', 'etag', 'content-type', 'x-request-id'),
    fc.constantFrom('x-a', 'x-b', 'a-name-that-is-longer'),
    fc.nat(50).map(number => `x-${number}`),
  )
  const value = fc.oneof(
    fc.constantFrom('', '/', '200', 'GET', 'a', '\xe9'),
    fc.nat(20).map(number => `value ${number}`),
    fc.nat(700).map(length => 'x'.repeat(length)),
  )
  const fields = fc.array(fc.tuple(name, value), { maxLength: 30, size: 'max' }).map(all => all.flat())
  const sizes = fc.array(fc.constantFrom(0, 31, 32, 100, 1000, 4095, 4096, 4097, 2 ** 32 - 1), { maxLength: 3 })

  test('what it encodes is decoded, whatever sizes are set in between', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(sizes, fields), { maxLength: 30, size: 'max' }), blocks => {
        const encoder = new HpackEncoder()
        const decoder = new HpackDecoder()
        for (const [sizes, fields] of blocks) {
          for (const bytes of sizes) encoder.setTableBytes(bytes)
          expect(decode(decoder, latin1(encoder.encode(fields)))).toEqual(fields)
        }
      }),
    )
  })

  test.each([
    ['a smaller size', [100], [100]],
    ['the size that it is', [4096], []],
    ['a larger size than we use', [65536], []],
    ['a smaller size and back', [100, 4096], [100, 4096]],
    ['several sizes', [100, 0, 4096, 50, 60], [0, 60]],
    ['larger, then smaller', [65536, 100], [100]],
  ])('announces %s (section 4.2), once', (_what, set, announced) => {
    const encoder = new HpackEncoder()
    for (const bytes of set) encoder.setTableBytes(bytes)
    expect(latin1(encoder.encode([]))).toEqual(Buffer.concat(announced.map(sizeUpdate)))
    expect(encoder.encode([])).toBe('')
  })

  test('announces only what was set since the previous block', () => {
    const encoder = new HpackEncoder()
    for (const bytes of [100, 200, 4096]) {
      encoder.setTableBytes(bytes)
      expect(latin1(encoder.encode([]))).toEqual(sizeUpdate(bytes))
    }
  })

  const encoded = (encoder: HpackEncoder, ...fields: string[]) => latin1(encoder.encode(fields))
  test('repeated fields become one byte each, and repeated names an index', () => {
    const encoder = new HpackEncoder()
    expect(encoded(encoder, 'a', 'b')).toEqual(literal(INCREMENTAL, 'a', 'b'))
    expect(encoded(encoder, ':method', 'GET', 'a', 'b')).toEqual(hex('82 be'))
    expect(encoded(encoder, 'a', 'c', 'date', 'now')).toEqual(hex('7e 0163 61 036e6f77'))
    expect(encoded(encoder, 'date', 'now', 'a', 'c', 'a', 'b', 'date', '')).toEqual(hex('be bf c0 61 00'))
  })

  test.each([
    ['authorization', '1f 08'],
    ['cookie', '1f 11'],
    ['proxy-authorization', '1f 22'],
    ['set-cookie', '1f 28'],
    ['content-length', '0f 0d'],
    [':path', '04'],
    ['x-request-id', '00 0c 782d726571756573742d6964'],
  ])('%s is not indexed', (name, start) => {
    const encoder = new HpackEncoder()
    for (let i = 0; i < 2; i++) expect(encoded(encoder, name, 'a')).toEqual(Buffer.concat([hex(start), string('a')]))
  })

  test('neither are long fields, nor those larger than the table', () => {
    const encoder = new HpackEncoder()
    const twice = (value: string) => [encoded(encoder, 'a', value), encoded(encoder, 'a', value)]
    const long = literal(WITHOUT_INDEXING, 'a', 'x'.repeat(512))
    expect(twice('x'.repeat(512))).toEqual([long, long])
    expect(twice('x'.repeat(511))).toEqual([literal(INCREMENTAL, 'a', 'x'.repeat(511)), indexed(62)])
    encoder.setTableBytes(34)
    encoder.encode([])
    const larger = literal(WITHOUT_INDEXING, 'a', 'bc')
    expect(twice('bc')).toEqual([larger, larger])
    expect(twice('b')).toEqual([literal(INCREMENTAL, 'a', 'b'), indexed(62)])
  })

  test('a name with many values is not searched to the end', () => {
    const encoder = new HpackEncoder()
    for (let i = 0; i < 200; i++) encoder.encode(['a', `${i}`])
    expect(encoded(encoder, 'a', '184')).toEqual(indexed(62 + 15))
    expect(encoded(encoder, 'a', '183')).toEqual(Buffer.concat([hex('7e'), string('183')]))
  })
})

describe('whatever arrives', () => {
  /** Counts how often bytes are read. */
  function counted(bytes: Uint8Array) {
    const counter = { reads: 0 }
    const get = (target: Uint8Array, key: string | symbol) => {
      if (typeof key === 'string' && /^\d+$/.test(key)) counter.reads++
      return Reflect.get(target, key)
    }
    return { block: new Proxy(new Uint8Array(bytes), { get }), counter }
  }

  function survives(blocks: Uint8Array[]) {
    const decoder = new HpackDecoder()
    for (const bytes of blocks) {
      const { block, counter } = counted(bytes)
      try {
        const { fields } = decoder.decode(block, 1000, 20)
        const length = fields.join('').length
        expect(length <= 1000 && fields.length <= 40, 'collected').toBe(true)
      } catch (error) {
        expect(error).toBeInstanceOf(HpackError)
      }
      expect(counter.reads).toBeLessThanOrEqual(2 * bytes.length + 2)
    }
  }

  test('random bytes end in fields or in an HpackError, and are read at most twice', () => {
    const block = fc.uint8Array({ maxLength: 200, size: 'max' })
    fc.assert(fc.property(fc.array(block, { maxLength: 20, size: 'max' }), survives), { numRuns: 300 })
  })

  test('so do examples with some other bytes', () => {
    const change = fc.tuple(fc.nat(100), fc.nat(255))
    fc.assert(
      fc.property(fc.array(fc.array(change, { maxLength: 3 }), { maxLength: 9 }), changes => {
        const blocks = [...C6, ...C6].map(block => hex(block))
        changes.forEach((some, i) => {
          for (const [at, byte] of some) blocks[i % blocks.length]![at % blocks[i % blocks.length]!.length] = byte
        })
        survives(blocks)
      }),
      { numRuns: 300 },
    )
  })
})

describe('memory', () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  function heapBytes(): number {
    gc()
    return process.memoryUsage().heapUsed
  }

  test("the encoder's table keeps no head alive of which a value was a slice", () => {
    const encoder = new HpackEncoder()
    const before = heapBytes()
    for (let i = 0; i < 40; i++) encoder.encode(['a', `${i}`.padStart(20, 'x').padEnd(1_000_000).slice(0, 20)])
    expect(heapBytes() - before).toBeLessThan(10_000_000)
    expect(encoder.encode(['a', 'xxxxxxxxxxxxxxxxxx39'])).toBe('\xbe')
  })

  test("the decoder's table keeps no entry alive that it evicted", () => {
    const decoders = Array.from({ length: 50 }, () => new HpackDecoder())
    const blocks = Array.from({ length: 128 }, (_, i) => literal(INCREMENTAL, `${i}`, 'x'.repeat(4000)))
    const before = heapBytes()
    for (const decoder of decoders) for (const block of blocks) decode(decoder, block)
    expect(heapBytes() - before).toBeLessThan(2_000_000)
    expect(tableOf(decoders[0]!).length).toBe(2)
  })
})

/** nghttp2, with its table and its Huffman code, at the other end of a real connection. */
describe('node:http2', () => {
  const HEADER_TABLE_SIZE = 1
  const ACK = 1
  const settings = (tableBytes: number) =>
    frame(TYPE.settings, 0, 0, Buffer.concat([Buffer.from([0, HEADER_TABLE_SIZE]), uint32(tableBytes)]))

  async function dial(tableBytes: number, onStream: (stream: ServerHttp2Stream, fields: string[]) => void) {
    const server = createServer({ settings: { headerTableSize: tableBytes } })
    server.on('stream', (stream, _headers, _flags, fields) =>
      onStream(stream as ServerHttp2Stream, fields as unknown as string[]),
    )
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    onTestFinished(() => {
      socket.destroy()
      server.close()
    })
    let received = Buffer.alloc(0)
    socket.on('data', (piece: Buffer) => {
      received = Buffer.concat([received, piece])
    })
    const arrived = (type: number) => framesOf(received).filter(frame => frame.type === type)
    socket.write(Buffer.concat([PREFACE, settings(tableBytes)]))
    await until(() => arrived(TYPE.settings).some(({ flags }) => flags !== ACK))
    socket.write(frame(TYPE.settings, ACK, 0))
    return { socket, arrived }
  }

  const REQUEST = [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', 'a']
  const names = ['accept', 'content-type', 'cookie', 'etag', 'x-a', 'x-b', 'x-a-longer-name']
  const values = ['', 'a', 'gzip, deflate', 'text/html', '\xe9', 'x'.repeat(100), 'y'.repeat(500)]
  const fields = fc
    .subarray(names)
    .chain(names => fc.tuple(...names.map(name => fc.constantFrom(...values).map(value => [name, value]))))
    .map(all => all.flat())

  test.each([0, 100, 4096, 65_536])('a table of %d bytes', async bytes => {
    const heads = fc.sample(fields, { numRuns: 200, seed: firstSeed() })
    const asked: string[][] = []
    const { socket, arrived } = await dial(bytes, (stream, fields) => {
      asked.push(fields)
      const pairs = Array.from({ length: fields.length / 2 }, (_, i) => [fields[2 * i], fields[2 * i + 1]])
      stream.respond(
        { ':status': 200 + asked.length, ...Object.fromEntries(pairs.slice(4)), date: 'now' },
        { endStream: true },
      )
    })
    const encoder = new HpackEncoder()
    encoder.setTableBytes(bytes)
    heads.forEach((fields, i) => {
      // In between, two changes at once, which nghttp2 announces with the next block.
      if (i === 100) socket.write(Buffer.concat([settings(0), settings(bytes)]))
      const block = latin1(encoder.encode([...REQUEST, ...fields]))
      socket.write(frame(TYPE.headers, END_HEADERS | END_STREAM, 2 * i + 1, block))
    })
    await until(() => arrived(TYPE.headers).length === heads.length)
    expect(asked).toEqual(heads.map(fields => [...REQUEST, ...fields]))
    const decoder = new HpackDecoder(bytes)
    const answers = arrived(TYPE.headers).map(({ payload }) => decode(decoder, payload))
    expect(answers).toEqual(heads.map((fields, i) => [':status', `${201 + i}`, ...fields, 'date', 'now']))
  })

  test('every entry of appendix A', async () => {
    const names = STATIC_NAMES.slice(15).filter(name => name !== 'transfer-encoding')
    const fields = names.map(name => [name, STATIC_VALUES[STATIC_NAMES.indexOf(name)]!])
    const statuses = STATIC_VALUES.slice(8, 15)
    const asked: string[][] = []
    const { socket, arrived } = await dial(4096, (stream, request) => {
      asked.push(request)
      stream.respond(
        { ':status': Number(statuses[asked.length - 1]), ...Object.fromEntries(fields) },
        { endStream: true },
      )
    })
    const encoder = new HpackEncoder()
    const sent = [':method', 'POST', ':scheme', 'https', ':path', '/index.html', ':authority', 'a']
    const blocks = statuses.map(() => encoder.encode(sent))
    // Only the authority is a literal.
    expect(blocks[0]!.length).toBe(6)
    blocks.forEach((block, i) => {
      socket.write(frame(TYPE.headers, END_HEADERS | END_STREAM, 2 * i + 1, latin1(block)))
    })
    await until(() => arrived(TYPE.headers).length === statuses.length)
    expect(asked).toEqual(statuses.map(() => sent))
    const decoder = new HpackDecoder()
    arrived(TYPE.headers).forEach(({ payload }, i) => {
      // Nearly all are one byte. No name is sent.
      expect(payload.length).toBeLessThan(60)
      expect(decode(decoder, payload)).toEqual([':status', statuses[i], ...fields.flat()])
    })
  })

  test('every code of appendix B', async () => {
    // Behind those that are short, so that the code makes the value shorter.
    const values = Array.from({ length: 255 }, (_, i) => [`x-${i + 1}`, 'a'.repeat(20) + String.fromCharCode(i + 1)])
    const head = { ':status': 200, ...Object.fromEntries(values), date: 'now' }
    const { socket, arrived } = await dial(4096, stream => stream.respond(head, { endStream: true }))
    socket.write(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, latin1(new HpackEncoder().encode(REQUEST))))
    await until(() => arrived(TYPE.headers).length === 1)
    const { payload } = arrived(TYPE.headers)[0]!
    expect(payload.includes('aaa')).toBe(false)
    expect(decode(new HpackDecoder(), payload)).toEqual([':status', '200', ...values.flat(), 'date', 'now'])
  })
})
