import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ReceiveWindow } from '../../../../protocol/wire/yamux/receive-window.ts'

const KIB = 1024
const MIB = 1024 * KIB

/**
 * A peer that always fills the window, a path of `bytesPerMs` and `rttMs`, a consumer that consumes everything at once.
 */
function settle(bytesPerMs: number, rttMs: number, maxBytes: number): number {
  const window = new ReceiveWindow(64 * KIB)
  let now = 0
  for (let i = 0; i < 4_000; i++) {
    const lot = Math.ceil(window.sizeBytes / 2)
    // Half a window takes half a round trip if the window is the limit, and otherwise its time on the path.
    now += Math.max((rttMs * lot) / window.sizeBytes, lot / bytesPerMs)
    window.openBytes -= Math.min(lot, window.openBytes)
    window.unreadBytes += lot
    window.consume(lot)
    if (window.creditDue) window.credit(window.growth(now, rttMs, maxBytes))
  }
  return window.sizeBytes
}

describe('receive window', () => {
  test('grows to about twice the bandwidth-delay product', () => {
    const product = 12_500 * 50
    expect(settle(12_500, 50, 16 * MIB)).toBeGreaterThan(1.2 * product)
    expect(settle(12_500, 50, 16 * MIB)).toBeLessThanOrEqual(2.1 * product)
  })

  test('never grows beyond its bound', () => {
    expect(settle(125_000, 100, 4 * MIB)).toBe(4 * MIB)
  })

  test('does not grow for a slow consumer, or without a round trip', () => {
    expect(settle(100, 50, 4 * MIB)).toBe(64 * KIB)
    expect(settle(1e9, 0, 4 * MIB)).toBe(64 * KIB)
  })

  test('consumption never exceeds what is unread', () => {
    const window = new ReceiveWindow(100)
    window.unreadBytes = 10
    expect(window.consume(30)).toBe(10)
    expect(window.consume(1)).toBe(0)
  })

  test('open, unread and owed bytes always add up to the whole window', () => {
    const steps = fc.array(fc.record({ kind: fc.constantFrom('receive', 'consume', 'credit'), bytes: fc.nat(100_000) }))
    fc.assert(
      fc.property(steps, list => {
        const window = new ReceiveWindow(64 * KIB)
        let now = 0
        for (const { kind, bytes } of list) {
          now += 7
          if (kind === 'receive') {
            const received = Math.min(bytes, window.openBytes)
            window.openBytes -= received
            window.unreadBytes += received
          } else if (kind === 'consume') window.consume(bytes)
          else if (window.creditDue) window.credit(window.growth(now, 5, 1 * MIB))
          expect(window.openBytes + window.unreadBytes + window.owedBytes).toBe(window.sizeBytes)
          expect(window.sizeBytes).toBeLessThanOrEqual(1 * MIB)
        }
      }),
    )
  })
})
