/**
 * Bytes of bodies whose every part can be told from every other: the period is a prime, so that a lost, doubled or
 * exchanged piece of any usual size shows.
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

/** At most 1 MiB of the body from `position` on; a view, not to be written. */
export function patternAt(position: number, bytes: number): Buffer {
  const start = position % PERIOD
  return slab.subarray(start, start + Math.min(bytes, SLAB_BYTES))
}

/** Whether `chunk` is what stands at `position`. */
export function isPattern(chunk: Buffer, position: number): boolean {
  for (let at = 0; at < chunk.length; at += SLAB_BYTES) {
    const part = chunk.subarray(at, at + SLAB_BYTES)
    if (!part.equals(patternAt(position + at, part.length))) return false
  }
  return true
}
