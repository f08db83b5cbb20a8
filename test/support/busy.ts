import { availableParallelism, loadavg } from 'node:os'

/** As much as our own suite gives each core to do. */
const USUAL = 3
const MOST = 5

/** Keeps this thread busy for that long. */
export function work(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

/**
 * A time within which something has to be done: a lease that is renewed, a query that is answered. It is as much longer as the
 * machine has more to do than usual.
 */
export function unhurried(ms: number): number {
  const [load = 0] = loadavg()
  return Math.round(ms * Math.min(MOST, Math.max(1, load / availableParallelism() / USUAL)))
}
