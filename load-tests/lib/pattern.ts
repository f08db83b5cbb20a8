/**
 * Bytes for bodies in which every piece differs from every other. The period is a prime, so a lost, duplicated or swapped piece of
 * any usual size is noticed.
 */
const PERIOD = 65_521
const SLAB_BYTES = 1024 * 1024

const slab = makeSlab()

function makeSlab(): Buffer {
  const period = Buffer.alloc(PERIOD)
  let state = 1
  for (let i = 0; i < PERIOD; i++) {
    state = (state * 48_271) % 2_147_483_647
    period[i] = state & 0xff
  }
  return Buffer.alloc(SLAB_BYTES + PERIOD, period)
}

/** At most 1 MiB of the body from `position` on. This is a view and must not be written to. */
export function patternAt(position: number, bytes: number): Buffer {
  const start = position % PERIOD
  return slab.subarray(start, start + Math.min(bytes, SLAB_BYTES))
}

/** Whether `chunk` is what belongs at `position`. */
export function isPattern(chunk: Buffer, position: number): boolean {
  for (let at = 0; at < chunk.length; at += SLAB_BYTES) {
    const part = chunk.subarray(at, at + SLAB_BYTES)
    if (!part.equals(patternAt(position + at, part.length))) return false
  }
  return true
}
