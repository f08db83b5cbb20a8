import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Terminal } from '../../../cli/terminal/terminal.ts'
import type { ExchangeRecord } from '../../../protocol/exchange.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const record = (more: Partial<ExchangeRecord> = {}): ExchangeRecord => ({
  ...{ requestId: 'r', runtime: 'demo', route: undefined, session: undefined, method: 'GET', host: 'h', path: '/' },
  ...{ caller: '192.0.2.1', status: 200, code: undefined, cut: false, durationMs: 12, bytesIn: 0, bytesOut: 2048 },
  ...{ upgrade: false, ...more },
})

const ESC = String.fromCharCode(27)
const COLOUR = new RegExp(`${ESC}\\[\\d*m`, 'g')
const UP = new RegExp(`^${ESC}\\[(\\d+)A\\r${ESC}\\[J`)

/** A screen that obeys what a terminal obeys, and knows no other control character. */
class Screen {
  columns = 100
  colours = false
  shows: 'all' | 'most' | 'failures' = 'most'
  rows: string[] = []
  text = ''
  write(text: string): void {
    this.text += text
    let rest = text.replaceAll(COLOUR, '')
    const up = UP.exec(rest)
    if (up !== null) {
      this.rows.splice(this.rows.length - Number(up[1]))
      rest = rest.slice(up[0].length)
    }
    if (rest === '') return
    expect(rest.endsWith('\n')).toBe(true)
    this.rows.push(...rest.slice(0, -1).split('\n'))
    expect(this.rows.join('')).not.toMatch(/\p{Cc}/u)
    for (const row of this.rows) expect(row.length).toBeLessThan(this.columns)
  }
}

function open(more: Partial<Screen> = {}): { screen: Screen; terminal: Terminal } {
  const screen = Object.assign(new Screen(), more)
  return { screen, terminal: new Terminal(screen, () => new Date(2026, 10, 23, 9, 8, 7)) }
}

test('one aligned line per request, and for a failure its code in words and what to do, once a minute', () => {
  const { screen, terminal } = open()
  terminal.exchange(record({ path: '/a' }))
  terminal.exchange(record({ status: 502, path: '/b', method: 'POST', code: 'upstream-refused', durationMs: 1.4 }))
  terminal.exchange(record({ status: 404, path: '/c', bytesOut: 7, durationMs: 1234 }))
  terminal.exchange(record({ status: 502, path: '/d', code: 'upstream-refused' }))
  vi.advanceTimersByTime(60_001)
  terminal.exchange(record({ status: 502, path: '/e', code: 'upstream-refused' }))
  const path = (text: string) => text.padEnd(100 - 1 - 42 - 23)
  expect(screen.rows).toEqual([
    `09:08:07  200 GET     ${path('/a')}   12 ms    2 KiB`,
    `09:08:07  502 POST    ${path('/b')}  1.4 ms    2 KiB  upstream refused`,
    '          Nothing is listening at the target: start the service, or give another target.',
    `09:08:07  404 GET     ${path('/c')} 1234 ms      7 B`,
    `09:08:07  502 GET     ${path('/d')}   12 ms    2 KiB  upstream refused`,
    `09:08:07  502 GET     ${path('/e')}   12 ms    2 KiB  upstream refused`,
    '          Nothing is listening at the target: start the service, or give another target.',
  ])
})

test('a caller that leaves is not red, and one that we cut is', () => {
  const { screen, terminal } = open({ colours: true })
  terminal.exchange(record({ code: 'cancelled' }))
  terminal.exchange(record({ code: 'cancelled', status: 0 }))
  expect(screen.text).not.toContain('\x1b[31m')
  expect(screen.text).toContain('\x1b[32m200')
  terminal.exchange(record({ code: 'request-timeout', cut: true }))
  expect(screen.text).toContain('\x1b[31m200')
})

test('a delivery from the inbox is named by its route and its webhook', () => {
  const { screen, terminal } = open()
  for (const inboxId of ['5d41402a-1111-4222-8333-444455556666', '7d793037-1111-4222-8333-444455556666']) {
    terminal.exchange(record({ status: 502, method: 'POST', route: 'hooks', inboxId }))
  }
  expect(screen.rows).toEqual([
    expect.stringContaining('502 POST    inbox hooks 5d41402a '),
    expect.stringContaining('502 POST    inbox hooks 7d793037 '),
  ])
})

test('a repeated line replaces the one before, with a count', () => {
  const { screen, terminal } = open()
  for (let n = 0; n < 12; n++) terminal.exchange(record({ status: 502, code: 'upstream-refused' }))
  expect(screen.rows).toHaveLength(2)
  vi.advanceTimersByTime(100)
  expect(screen.rows).toEqual([expect.stringContaining('x12  upstream refused'), expect.stringContaining('Nothing')])
  terminal.exchange(record({ path: '/other' }))
  terminal.exchange(record())
  terminal.exchange(record())
  terminal.log({ level: 'warn', msg: 'something', err: { message: 'why' } })
  terminal.log({ level: 'warn', msg: 'something', err: { message: 'why' } })
  terminal.close()
  expect(screen.rows.slice(2).map(row => row.slice(10))).toEqual([
    expect.stringMatching(/^200 GET {5}\/other/),
    expect.stringMatching(/^200 GET {5}\/ .* x2$/),
    'warn something: why (x2)',
  ])
})

test('the cause of failed requests is told once, so that their lines fold', () => {
  const { screen, terminal } = open()
  for (let n = 0; n < 12; n++) {
    const about = { route: 'all', requestId: `id-${n}`, code: 'upstream-refused' }
    terminal.log({ level: 'warn', msg: 'an upstream failed', err: { message: 'connecting' }, ...about })
    terminal.exchange(record({ status: 502, code: 'upstream-refused' }))
  }
  terminal.close()
  expect(screen.rows).toEqual([
    '09:08:07  warn an upstream failed: connecting',
    expect.stringContaining('x12  upstream refused'),
    expect.stringContaining('Nothing'),
  ])
})

test('the targets of two routes are both told, even if only their ports differ', () => {
  const { screen, terminal } = open()
  for (const [path, port] of [
    ['/web', 3001],
    ['/api', 3002],
    ['/web', 3001],
  ] as const) {
    const err = { message: `connecting to localhost:${port} (ECONNREFUSED)` }
    const about = { route: `app${port}`, requestId: `id-${path}`, code: 'upstream-refused' }
    terminal.log({ level: 'warn', msg: 'an upstream failed', err, ...about })
  }
  terminal.close()
  expect(screen.rows).toEqual([
    '09:08:07  warn an upstream failed: connecting to localhost:3001 (ECONNREFUSED)',
    '09:08:07  warn an upstream failed: connecting to localhost:3002 (ECONNREFUSED)',
  ])
})

test('with -v, no field is lost in a count', () => {
  const { screen, terminal } = open({ shows: 'all' })
  terminal.log({ level: 'info', msg: 'listening', name: 'admin' })
  terminal.log({ level: 'info', msg: 'listening', name: 'health' })
  terminal.close()
  expect(screen.rows).toEqual(['09:08:07  info listening name=admin', '09:08:07  info listening name=health'])
})

test('no line is replaced in a resized window, or if characters may be wide', () => {
  const { screen, terminal } = open()
  terminal.exchange(record())
  screen.columns = 90
  terminal.exchange(record())
  terminal.note('東京')
  terminal.note('東京')
  terminal.close()
  expect(screen.rows).toHaveLength(4)
  expect(screen.text).not.toContain(ESC)
})

test.each([30, 40, 60, 80, 200])('rows fit a window of %i columns', columns => {
  const { screen, terminal } = open({ columns: Math.max(40, columns), colours: true })
  const path = `/${'long/'.repeat(80)}`
  terminal.exchange(record({ path, status: 503, code: 'overloaded', cut: true, method: 'PROPPATCHES' }))
  terminal.exchange(record({ path, status: 502, code: 'upstream-tls' }))
  terminal.banner('target', `http://${'x'.repeat(300)} and words and words`)
  terminal.log({ level: 'error', msg: 'a word '.repeat(40) })
  expect(screen.rows.length).toBeGreaterThan(4)
})

test('text from callers and servers cannot move the cursor', () => {
  const { screen, terminal } = open({ shows: 'all' })
  const evil = '\x1b[2J\x1b]0;title\x07\r\n\u009b31m\u202e\u2028\x08\x7f'
  terminal.exchange(record({ path: `/${evil}`, method: `G${evil}` }))
  terminal.log({ level: 'warn', msg: evil, err: { message: evil }, field: evil, other: { deep: evil } })
  terminal.note(evil)
  terminal.banner('public', `https://${evil}`)
  expect(screen.rows.join('')).not.toMatch(/[\u202e\u2028]/)
})

test.each([1000, 2])('a flood of requests for %i paths in turn is counted up to its end', paths => {
  const { screen, terminal } = open()
  for (let n = 0; n < 1000; n++) terminal.exchange(record({ path: `/${n % paths}` }))
  expect(screen.rows.length).toBe(60)
  vi.advanceTimersByTime(100)
  expect(screen.rows.at(-1)).toBe('09:08:07  and 940 more')
})

test('quiet mode shows only failures; without colours, no escape code is written', () => {
  const { screen, terminal } = open({ shows: 'failures' })
  terminal.banner('public', 'https://demo')
  terminal.note('connected again')
  terminal.log({ level: 'warn', msg: 'no session' })
  expect(screen.rows).toEqual(['09:08:07  warn no session'])
  expect(screen.text).not.toContain(ESC)
  const colours = open({ colours: true })
  colours.terminal.exchange(record())
  expect(colours.screen.text).toContain(`${ESC}[32m200${ESC}[0m`)
})
