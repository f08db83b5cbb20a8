import { expect, test } from 'vitest'
import type { Http2Connection } from '../../../../protocol/http/http2/connection.ts'
import { ControlBytes } from '../../../../protocol/http/http2/control-bytes.ts'

const KIB = 1024
const LIMIT = 64 * KIB
const LOOK_MS = 2000

/** `look` lets a look's time pass, in which the peer sends so much that carries nothing. Returns whether the session ends. */
function start() {
  const state = { controlBytes: 0, sender: { pieces: 0 }, streams: new Set() }
  const control = new ControlBytes()
  let now = performance.now()
  let written = 0
  return {
    look(controlBytes: number, requests = 0): boolean {
      now += LOOK_MS
      state.controlBytes += controlBytes
      written += requests * 100
      state.sender.pieces += requests
      for (let i = 0; i < requests; i++) control.requestOver()
      let ends = false
      control.check(state as unknown as Http2Connection, written, LIMIT, now, () => {
        ends = true
      })
      return ends
    },
  }
}

/** How many looks it takes until a flood of this much a second ends the session. */
function looksUntilEnd(session: ReturnType<typeof start>, bytesPerSecond: number): number {
  for (let looks = 1; looks < 1000; looks++) if (session.look((bytesPerSecond * LOOK_MS) / 1000)) return looks
  return Number.POSITIVE_INFINITY
}

test('a flood ends a session that has answered many requests nearly as soon as a fresh one', () => {
  expect(looksUntilEnd(start(), 128 * KIB)).toBe(1)
  const session = start()
  for (let look = 0; look < 20; look++) expect(session.look(2000 * 45, 2000)).toBe(false)
  expect(looksUntilEnd(session, 1024 * KIB)).toBe(1)
})

test('many small requests with a ping and window updates for each are no flood, however late those come', () => {
  const session = start()
  const each = 3 * 17 + 4 * 13
  for (let look = 0; look < 50; look++) expect(session.look(look === 0 ? 0 : 4000 * each, 4000)).toBe(false)
  expect(session.look(4000 * each)).toBe(false)
})
