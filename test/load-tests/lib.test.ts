import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { drawChart } from '../../load-tests/lib/charts.ts'
import { type Answer, AnswerReader } from '../../load-tests/lib/http1-client.ts'
import { Tally } from '../../load-tests/lib/load.ts'
import { figure, interleaved, quantile, slope } from '../../load-tests/lib/measure.ts'
import { isPattern, patternAt } from '../../load-tests/lib/pattern.ts'
import { writeReport } from '../../load-tests/lib/report.ts'
import { grid, number, type Section } from '../../load-tests/lib/section.ts'
import { choosePeers } from '../../load-tests/setups/peers/index.ts'

describe('figures', () => {
  test('median, minimum and maximum', () => {
    expect(figure([3, 1, 2])).toEqual({ median: 2, min: 1, max: 3 })
    expect(figure([4, 1, 2, 3])).toEqual({ median: 2.5, min: 1, max: 4 })
    expect(figure([]).median).toBeNaN()
  })

  test('quantiles by nearest rank', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => index + 1)
    expect([quantile(hundred, 0.5), quantile(hundred, 0.99), quantile(hundred, 1)]).toEqual([50, 99, 100])
    expect(quantile([], 0.5)).toBeNaN()
  })

  test('the slope of a line with noise', () => {
    expect(slope([0, 1, 2, 3].map(x => [x, 2 * x + 5]))).toBeCloseTo(2)
    expect(slope([0, 1, 2, 3].map(x => [x, 7 + (x % 2 === 0 ? 1 : -1) * 0])) + 0).toBeCloseTo(0)
  })

  test('rounds are interleaved; a warm-up counts only for wrong answers', async () => {
    const order: string[] = []
    const subjects = ['a', 'b'].map(key => ({ key, name: key }))
    const rows = await interleaved(subjects, { rounds: 2, progress: () => {} }, async (subject, isWarmUp) => {
      order.push(subject.key)
      return { figures: { ms: isWarmUp ? 100 : 1 }, wrong: isWarmUp ? 1 : 0 }
    })
    expect(order.join('')).toBe('ababab')
    expect(rows[0]).toEqual({ key: 'a', name: 'a', figures: { ms: { median: 1, min: 1, max: 1 } }, wrong: 1 })
  })
})

describe('answers', () => {
  const read = (pieces: Buffer[]): (Answer | 'broken')[] => {
    const seen: (Answer | 'broken')[] = []
    const reader = new AnswerReader(
      answer => seen.push({ ...answer, body: Buffer.from(answer.body) }),
      () => seen.push('broken'),
    )
    for (const piece of pieces) reader.read(piece)
    return seen
  }
  const whole = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello'
  const chunked = 'HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n'

  test.each([
    [whole, 200],
    [chunked, 503],
  ])('cut at every byte: %j', (text, status) => {
    const bytes = Buffer.from(text)
    for (let at = 1; at < bytes.length; at++)
      expect(read([bytes.subarray(0, at), bytes.subarray(at)])).toEqual([{ status, body: Buffer.from('hello') }])
  })

  test('a short answer is unanswered, a long one is broken', () => {
    expect(read([Buffer.from(whole.slice(0, -1))])).toEqual([])
    expect(read([Buffer.from(`${whole}!`)])).toEqual(['broken'])
    expect(read([Buffer.from('HTTP/1.1 200 OK\r\n\r\nhello')])).toEqual(['broken'])
    expect(read([Buffer.from(chunked.replace('2\r\nhe', 'z\r\nhe'))])).toEqual(['broken'])
  })

  test('204 has no body', () => {
    expect(read([Buffer.from('HTTP/1.1 204 No Content\r\n\r\n')])).toEqual([{ status: 204, body: Buffer.alloc(0) }])
  })

  test('are counted by status; wrong ones have no latency, unsent ones have', () => {
    const tally = new Tally()
    for (let i = 0; i < 30; i++) tally.add('200', i, true)
    expect(tally.failed(0.05)).toBe(false)
    tally.add('503', 1000, false)
    tally.add('broken', 1000, false)
    tally.addUnsent(500)
    expect(tally.failed(0.05)).toBe(true)
    expect(tally.failed(undefined)).toBe(false)
    expect(tally.result(1000)).toMatchObject({
      ...{ requests: 32, wrong: 2, answers: { 200: 30, 503: 1, broken: 1 }, perSecond: 30, max: 500 },
    })
  })
})

test('a lost, doubled or moved piece of a body is noticed', () => {
  const body = Buffer.concat([patternAt(0, 100_000), patternAt(100_000, 900_000)])
  expect(body.length).toBe(1_000_000)
  expect(isPattern(body, 0)).toBe(true)
  expect(isPattern(body.subarray(70_000), 70_000)).toBe(true)
  for (const bytes of [1, 1024, 16_384, 65_536, 262_144]) expect(isPattern(body.subarray(bytes), 0)).toBe(false)
  body[999_999]! ^= 1
  expect(isPattern(body, 0)).toBe(false)
})

describe('a section', () => {
  const one = (value: number) => ({ median: value, min: value, max: value })
  const section: Section = {
    ...{ name: 'x', title: 'X <b>', note: 'a "note" & more', charts: [] },
    measured: [
      { key: 'nginx', name: 'nginx <hop>', figures: { cpu: { median: 10, min: 9, max: 11 } }, wrong: 0 },
      { key: 'tunnel', name: 'tunnel', figures: { cpu: one(25) }, wrong: 3 },
      { key: 'direct', name: 'direct', figures: {}, wrong: 0 },
    ],
    columns: [
      { title: 'CPU', figure: 'cpu' },
      { title: 'x', figure: 'cpu', over: 'nginx' },
      { title: 'above', figure: 'cpu', above: 'nginx' },
    ],
  }

  test('shows figures, multiples, differences and problems', () => {
    const text = grid(section).rows.map(row => row.map(cell => cell.text))
    expect(text).toEqual([
      ['nginx <hop>', '10.0', '1.00x', '0.00', '0'],
      ['tunnel', '25.0', '2.50x', '15.0', '3'],
      ['direct', '-', '-', '-', '0'],
    ])
    expect(grid(section).rows[0]![1]!.range).toBe('9.00 to 11.0')
    expect(grid(section).rows[1]!.at(-1)!.isBad).toBe(true)
  })

  test('a report escapes what it shows, and counts wrong answers in red', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-report-'))
    const environment = { command: '<script>alert(1)</script>' }
    const path = writeReport(folder, { title: 'T', environment, sections: [section], skipped: ['a & b'] })
    const html = await readFile(path, 'utf8')
    await rm(folder, { recursive: true })
    expect(html).not.toContain('<script')
    expect(html).not.toContain('<hop>')
    expect(html).toContain('<p class="bad">3 answers were wrong, short or missing.</p>')
    expect(html).toContain('a &#38; b')
  })

  test.each([
    [0.1234, '0.12'],
    [12.34, '12.3'],
    [1234.5, '1,235'],
    [-150, '-150'],
    [Number.NaN, '-'],
  ])('number %d is %s', (value, text) => expect(number(value)).toBe(text))
})

describe('charts', () => {
  test('a bar for each value, the longest for the maximum', () => {
    const bar = (label: string, value: number) => ({ label, value, isOurs: false })
    const svg = drawChart({ title: 'T', unit: 'ms', bars: [bar('a', 1), bar('b', 4)] })
    const widths = [...svg.matchAll(/<rect [^>]*width="([\d.]+)"/g)].map(match => Number(match[1]))
    expect(widths[1]! / widths[0]!).toBeCloseTo(4)
  })

  test.each([false, true])('a line through finite points, logarithmic: %s', isLog => {
    const points = [[0, 1] as const, [5, 100] as const, [6, Number.NaN] as const]
    const svg = drawChart({ title: 'T', x: 'x', y: 'y', isLog, lines: [{ label: 'a', points }] })
    expect(svg).not.toMatch(/NaN|Infinity/)
    expect(/points="([^"]+)"/.exec(svg)![1]!.split(' ')).toHaveLength(2)
  })

  test('no points, no error', () => {
    expect(drawChart({ title: 'T', x: 'x', y: 'y', lines: [{ label: 'a', points: [] }] })).not.toMatch(/NaN|Infinity/)
  })
})

test('peers: none, and unknown names', () => {
  expect(choosePeers('none')).toEqual([])
  expect(() => choosePeers('nobody')).toThrow('no peer is called nobody')
})
